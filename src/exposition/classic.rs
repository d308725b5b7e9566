//! Converts OpenMetrics text to the classic Prometheus text format 0.0.4, which prometheus-client
//! does not write.
//!
//! For the metrics of this exporter, only comment lines differ: in the classic format HELP and TYPE
//! contain the name of the sample (with `_total` or `_info`), an info is a gauge, and UNIT and EOF
//! do not exist. Sample lines are the same in both formats if there are no exemplars and no
//! timestamps, and the collector writes neither. A line end inside a label value is escaped, so a
//! line that starts with `#` is always a comment.

/// Expects the text that prometheus-client writes: HELP before TYPE for each family.
pub(super) fn from_openmetrics(openmetrics: &str) -> String {
    let mut classic = String::with_capacity(openmetrics.len());
    let mut help = "";
    for line in openmetrics.lines() {
        if let Some(family_and_help) = line.strip_prefix("# HELP ") {
            help = family_and_help.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some(family_and_type) = line.strip_prefix("# TYPE ") {
            let (family, kind) = family_and_type.split_once(' ').unwrap_or((family_and_type, "untyped"));
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                _ => ("", kind),
            };
            classic.push_str(&format!("# HELP {family}{suffix} {help}\n# TYPE {family}{suffix} {kind}\n"));
        } else if !line.starts_with("# UNIT ") && line != "# EOF" {
            classic.push_str(line);
            classic.push('\n');
        }
    }
    classic
}

#[cfg(test)]
mod tests {
    use super::from_openmetrics;

    fn check(openmetrics: &str, classic: &str) {
        assert_eq!(from_openmetrics(openmetrics), classic);
    }

    #[test]
    fn counters_move_their_suffix_into_help_and_type() {
        check(
            "# HELP a_seconds Some help.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\na_seconds_total 1.5\n# EOF\n",
            "# HELP a_seconds_total Some help.\n# TYPE a_seconds_total counter\na_seconds_total 1.5\n",
        );
    }

    #[test]
    fn infos_become_gauges() {
        check(
            "# HELP a Some help.\n# TYPE a info\na_info{b=\"c\"} 1\n# EOF\n",
            "# HELP a_info Some help.\n# TYPE a_info gauge\na_info{b=\"c\"} 1\n",
        );
    }

    #[test]
    fn gauges_and_histograms_stay() {
        check(
            "# HELP a Some help.\n# TYPE a gauge\na 1\n# HELP b B.\n# TYPE b histogram\nb_bucket{le=\"+Inf\"} 0\n# EOF\n",
            "# HELP a Some help.\n# TYPE a gauge\na 1\n# HELP b B.\n# TYPE b histogram\nb_bucket{le=\"+Inf\"} 0\n",
        );
    }

    #[test]
    fn label_values_are_never_taken_for_comments_or_exemplars() {
        let sample = "a{source=\"# EOF # {x=\\\"1\\\"} 2 \\n# UNIT a b\"} 1\n";
        check(sample, sample);
    }
}
