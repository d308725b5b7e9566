//! Closed sets of label values: [`Label`] and the macro that declares them.
//!
//! Each value knows its own spelling and each set lists its values, so that no label value is written twice.

/// A closed set of label values: every one is known at start, so every series can exist at 0 from the start.
pub trait Label: Copy + Eq + 'static {
    const ALL: &'static [Self];

    /// The label value.
    fn as_str(self) -> &'static str;

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|value| value.as_str() == text)
    }

    /// JournalPosition in [`Label::ALL`].
    fn index(self) -> usize;
}

/// Declares a fieldless enum together with its label spelling, in label order.
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
