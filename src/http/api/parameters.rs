//! The query parameters of `/api/v1`: decodes and checks them. `http::api` calls it.
//!
//! Unknown parameters are refused, not ignored. Otherwise a misspelled filter would return
//! everything as if it matched.

use super::ApiError;
use crate::util::percent::percent_decode;

const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1_000;

/// The parameters of one request. `take` removes a parameter; the remaining ones are unknown.
pub(in crate::http) struct Parameters(Vec<(String, String)>);

impl Parameters {
    pub(in crate::http) fn parse(query: Option<&str>) -> Result<Self, ApiError> {
        let mut parameters: Vec<(String, String)> = Vec::new();
        for pair in query.unwrap_or("").split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = |text: &str| percent_decode(&text.replace('+', " "));
            let name = decoded(name).map_err(|_| bad("query", "its names must be percent-encoded UTF-8"))?;
            let value = decoded(value).map_err(|_| bad(&name, "must be percent-encoded UTF-8"))?;
            if parameters.iter().any(|(known, _)| *known == name) {
                return Err(bad(&name, "is given twice"));
            }
            parameters.push((name, value));
        }
        Ok(Self(parameters))
    }

    /// An empty value counts as missing, because forms send empty fields.
    pub(in crate::http) fn take(&mut self, name: &str) -> Option<String> {
        let index = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.swap_remove(index).1).filter(|value| !value.is_empty())
    }

    pub(in crate::http) fn take_limit(&mut self) -> Result<usize, ApiError> {
        let Some(text) = self.take("limit") else { return Ok(DEFAULT_LIMIT) };
        let limit = text.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
        limit.ok_or_else(|| bad("limit", &format!("must be a number from 1 to {MAX_LIMIT}")))
    }

    pub(in crate::http) fn take_offset(&mut self) -> Result<usize, ApiError> {
        let Some(text) = self.take("offset") else { return Ok(0) };
        text.parse().map_err(|_| bad("offset", "must be a number"))
    }

    /// Refuses the remaining parameters. Call it after all known parameters are taken.
    pub(in crate::http) fn finish(self, known: &[&str]) -> Result<(), ApiError> {
        let Some((unknown, _)) = self.0.first() else { return Ok(()) };
        let known = if known.is_empty() { "there are none".to_owned() } else { format!("known: {}", known.join(", ")) };
        Err(bad(unknown, &format!("is unknown here, {known}")))
    }
}

pub(in crate::http) fn bad(parameter: &str, complaint: &str) -> ApiError {
    ApiError::bad_request(format!("parameter {parameter:?} {complaint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_and_the_unknown_is_named() {
        let mut parameters = Parameters::parse(Some("search=a+b%3A&&limit=&lock_namespace=&x=1")).ok().unwrap();
        assert_eq!(parameters.take("search").as_deref(), Some("a b:"));
        assert_eq!(parameters.take_limit().ok(), Some(100));
        assert_eq!(parameters.take("lock_namespace"), None);
        let refusal = parameters.finish(&["search", "limit"]).err().unwrap();
        assert_eq!(refusal.message, "parameter \"x\" is unknown here, known: search, limit");
        assert!(Parameters::parse(None).ok().unwrap().finish(&[]).is_ok());
        assert!(Parameters::parse(Some("a=1&a=2")).is_err());
        assert!(Parameters::parse(Some("a=%")).is_err());
    }
}
