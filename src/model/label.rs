//! Closed sets of label values: the trait [`Label`] and the macro `label_enum!` that declares them.
//!
//! Each value knows its own spelling and each set lists its values, so no label value is written
//! twice.

/// A closed set of label values. All values are known at startup, so every series can start at 0.
pub trait Label: Copy + Eq + 'static {
    const ALL: &'static [Self];

    /// Returns the label value.
    fn as_str(self) -> &'static str;

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|value| value.as_str() == text)
    }

    /// Returns the index in [`Label::ALL`].
    fn index(self) -> usize;
}

/// Saves a label as its text: `#[serde(with = "as_text")]`.
pub(crate) mod as_text {
    use serde::{Deserialize, Deserializer, Serializer, de};

    use super::Label;

    pub(crate) fn serialize<L: Label, S: Serializer>(label: &L, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(label.as_str())
    }

    pub(crate) fn deserialize<'de, L: Label, D: Deserializer<'de>>(deserializer: D) -> Result<L, D::Error> {
        let text = <std::borrow::Cow<str>>::deserialize(deserializer)?;
        L::parse(&text).ok_or_else(|| de::Error::custom(format_args!("unknown label {text:?}")))
    }
}

/// Declares a fieldless enum together with its label values, in the order of the labels.
macro_rules! label_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$variant_meta])* $variant),+ }

        impl Label for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            fn index(self) -> usize {
                self as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(self.as_str())
            }
        }
    };
}

pub(crate) use label_enum;
