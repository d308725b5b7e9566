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
