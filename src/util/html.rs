//! Escapes text for HTML.
//!
//! The page and the runbooks use it for all text that is not part of the program.

use std::fmt::{self, Write};

/// Text that is displayed with escapes, so that it is safe between tags and inside quoted
/// attributes.
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => formatter.write_str("&amp;")?,
                '<' => formatter.write_str("&lt;")?,
                '>' => formatter.write_str("&gt;")?,
                '"' => formatter.write_str("&quot;")?,
                '\'' => formatter.write_str("&#39;")?,
                other => formatter.write_char(other)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_escaped() {
        assert_eq!(Escaped("<b a='1' c=\"2\">&ü").to_string(), "&lt;b a=&#39;1&#39; c=&quot;2&quot;&gt;&amp;ü");
    }
}
