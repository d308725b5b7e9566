//! Checks the dashboards without Grafana. Their queries parse as PromQL and use existing metrics,
//! they follow the rules of Grafana's dashboard-linter, panels do not overlap, and links have valid
//! targets. Each check uses the linter's name of the rule. Where we do not follow a rule, a
//! constant explains why.
//!
//! scripts/try_dashboards.py checks what needs a Prometheus with data. scripts/check_dashboards.py
//! checks what needs Grafana's types.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use promql_parser::parser::{Expr, VectorSelector};
use regex::Regex;
use serde_json::Value;

use redis_lock_exporter::exposition::{MetricKind, metrics};

use crate::runbooks::pack;
use crate::runbooks::queries::{Known, Selected, collect};

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/dashboards");
const NAMES: [&str; 3] = ["exporter", "namespace", "overview"];
const DATA_SOURCE: &str = "${datasource}";
/// Panel types that are part of Grafana 10 and later.
const CORE_PANELS: [&str; 6] = ["heatmap", "row", "stat", "state-timeline", "table", "timeseries"];
/// The units that we use, from the linter's long list.
const UNITS: [&str; 8] = ["Bps", "bool_yes_no", "bytes", "dateTimeFromNow", "ops", "percentunit", "s", "short"];
/// The Okabe-Ito colors, and color names that follow the theme.
const COLORS: [&str; 10] =
    ["#009E73", "#56B4E9", "#F0E442", "#E69F00", "#D55E00", "#999999", "#0072B2", "#CC79A7", "text", "transparent"];
/// target-job-rule and target-instance-rule: series that have neither label, and the reason.
const WITHOUT_TARGET: [(&str, &str); 2] = [
    (
        r"^\w+:\w+:\w+$",
        "a recording rule summed it over jobs and instances, since logs and Redis may be watched by different ones",
    ),
    ("^ALERTS(_FOR_STATE)?$", "an alert has the labels of its expression, which is about recorded series"),
];

struct Dashboard {
    name: &'static str,
    json: Value,
}

/// A query and its location.
struct Query {
    place: String,
    text: String,
}

impl Query {
    /// Parses the query after replacing Grafana's variables with text that Prometheus can parse.
    fn parse(&self) -> Expr {
        let text = self.text.replace("$__rate_interval", "4m").replace("$__range", "1h");
        promql_parser::parser::parse(&text).unwrap_or_else(|error| panic!("{}: {error}\n{text}", self.place))
    }
}

impl Dashboard {
    fn all() -> Vec<Self> {
        let mut files: Vec<String> =
            fs::read_dir(DIRECTORY).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        files.retain(|name| name.ends_with(".json"));
        files.sort();
        assert_eq!(files, NAMES.map(|name| format!("{name}.json")));
        let read = |name| {
            let text = fs::read_to_string(format!("{DIRECTORY}/{name}.json")).unwrap();
            Self { name, json: serde_json::from_str(&text).unwrap() }
        };
        NAMES.into_iter().map(read).collect()
    }

    fn panels(&self) -> &Vec<Value> {
        self.json["panels"].as_array().unwrap()
    }

    fn place(&self, panel: &Value) -> String {
        format!("{}, panel {} {}", self.name, panel["id"], panel["title"])
    }

    /// Returns the panels that show data, without the headings.
    fn shown(&self) -> impl Iterator<Item = (String, &Value)> {
        let shown = self.panels().iter().filter(|panel| panel["type"] != "row");
        shown.map(|panel| (self.place(panel), panel))
    }

    fn variables(&self) -> BTreeMap<&str, &Value> {
        let list = self.json["templating"]["list"].as_array().unwrap();
        list.iter().map(|variable| (text(&variable["name"]), variable)).collect()
    }

    fn annotations(&self) -> impl Iterator<Item = &Value> {
        let list = self.json["annotations"]["list"].as_array().unwrap();
        list.iter().filter(|annotation| annotation["builtIn"] != 1)
    }

    /// Returns the queries of panels and annotations, and the selectors of variables.
    fn queries(&self) -> Vec<Query> {
        let mut queries = Vec::new();
        for (place, panel) in self.shown() {
            for target in panel["targets"].as_array().unwrap() {
                let place = format!("{place}, {}", text(&target["refId"]));
                queries.push(Query { place, text: text(&target["expr"]).to_owned() });
            }
        }
        for annotation in self.annotations() {
            let place = format!("{}, annotation {}", self.name, annotation["name"]);
            queries.push(Query { place, text: text(&annotation["expr"]).to_owned() });
        }
        queries
    }

    /// template-label-promql-rule: returns the selector in `label_values` of a variable.
    fn variable_queries(&self) -> Vec<Query> {
        let form = Regex::new(r"^label_values\((.+), [a-z_]+\)$").unwrap();
        let asking = self.variables().into_iter().filter(|(_, variable)| variable["type"] == "query");
        let queries = asking.map(|(name, variable)| {
            let place = format!("{}, variable {name}", self.name);
            let query = text(&variable["query"]["query"]);
            assert_eq!(variable["definition"], query, "{place}");
            let captures = form.captures(query).unwrap_or_else(|| panic!("{place}: {query}"));
            Query { place, text: captures[1].to_owned() }
        });
        queries.collect()
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("not text: {value}"))
}

/// target-promql-rule, template-label-promql-rule. Also ensures that renaming a metric leaves no
/// empty panel.
#[test]
fn queries_parse_and_name_metrics_and_labels_that_exist() {
    let known = Known::new();
    let mut n_queries = 0;
    for dashboard in Dashboard::all() {
        for query in dashboard.queries().into_iter().chain(dashboard.variable_queries()) {
            let expression = query.parse();
            let mut selectors = Vec::new();
            collect(&expression, &mut selectors);
            assert!(!selectors.is_empty(), "{}: the query selects no metric", query.place);
            for Selected { selector, .. } in selectors {
                known
                    .check(selector)
                    .unwrap_or_else(|complaint| panic!("{}: {complaint}\n{}", query.place, query.text));
            }
            n_queries += 1;
        }
    }
    assert!(n_queries > 150, "only {n_queries} queries were found");
}

/// template-datasource-rule, template-job-rule, template-instance-rule, template-on-time-change-reload-rule.
#[test]
fn dashboard_variables_follow_grafana_conventions() {
    let used = Regex::new(r"\$\{?([a-z_]+)").unwrap();
    for dashboard in Dashboard::all() {
        let variables = dashboard.variables();
        let source = variables["datasource"];
        assert_eq!(
            (&source["type"], &source["query"], &source["label"]),
            (&"datasource".into(), &"prometheus".into(), &"Data source".into())
        );
        let mut expected = vec!["cluster", "instance", "job"];
        if dashboard.name != "exporter" {
            expected.push("lock_namespace");
        }
        let asking: Vec<&str> = variables.keys().copied().filter(|name| *name != "datasource").collect();
        assert_eq!(asking, expected, "{}", dashboard.name);
        for name in asking {
            let variable = variables[name];
            let place = format!("{}, variable {name}", dashboard.name);
            assert_eq!(variable["type"], "query", "{place}");
            assert_eq!(variable["datasource"]["uid"], DATA_SOURCE, "{place}");
            assert_eq!(variable["refresh"], 2, "{place}: the variable must reload when the time range changes");
            assert_eq!((&variable["multi"], &variable["includeAll"]), (&true.into(), &true.into()), "{place}");
            // Targets may lack the label `cluster`, and All has to match those targets.
            assert_eq!(variable["allValue"], if name == "cluster" { ".*" } else { ".+" }, "{place}");
            let label = text(&variable["label"]);
            assert_eq!(label.to_lowercase().replace(' ', "_"), name, "{place}");
        }
        for query in dashboard.queries() {
            for captures in used.captures_iter(&query.text) {
                let name = &captures[1];
                let is_known = variables.contains_key(name) || ["__rate_interval", "__range"].contains(&name);
                assert!(is_known, "{}: there is no variable {name}", query.place);
            }
        }
    }
}

/// panel-datasource-rule, panel-title-description-rule, panel-units-rule, panel-no-targets-rule, target-logql-rule and
/// target-logql-auto-rule (there is no Loki here), uneditable-dashboard-rule.
#[test]
fn panels_explain_what_they_show_and_what_no_data_means() {
    for dashboard in Dashboard::all() {
        assert_eq!(dashboard.json["editable"], false);
        let mut titles = BTreeSet::new();
        for (place, panel) in dashboard.shown() {
            assert!(CORE_PANELS.contains(&text(&panel["type"])), "{place}: the panel type is a plugin");
            assert_eq!(
                (&panel["datasource"]["type"], &panel["datasource"]["uid"]),
                (&"prometheus".into(), &DATA_SOURCE.into()),
                "{place}"
            );
            assert!(!text(&panel["title"]).is_empty() && titles.insert(text(&panel["title"])), "{place}: title");
            assert!(text(&panel["description"]).len() > 30, "{place}: description");
            let defaults = &panel["fieldConfig"]["defaults"];
            assert!(UNITS.contains(&text(&defaults["unit"])), "{place}: unit");
            let no_value = text(&defaults["noValue"]);
            assert!(
                no_value.len() > 5 && no_value.to_lowercase() != "no data",
                "{place}: what does it mean when there is nothing?"
            );
            let targets = panel["targets"].as_array().unwrap();
            assert!(!targets.is_empty(), "{place}: no query");
            for target in targets {
                assert_eq!(target["datasource"], panel["datasource"], "{place}");
                let is_named = panel["type"] == "table" || target["legendFormat"] != "__auto";
                assert!(is_named, "{place}: the query needs its own legend instead of all labels");
            }
            for settings in panel["fieldConfig"]["overrides"].as_array().unwrap() {
                for property in
                    settings["properties"].as_array().unwrap().iter().filter(|property| property["id"] == "unit")
                {
                    assert!(UNITS.contains(&text(&property["value"])), "{place}: unit {property}");
                }
            }
        }
        for annotation in dashboard.annotations() {
            assert_eq!(
                annotation["datasource"]["uid"], DATA_SOURCE,
                "{}, annotation {}",
                dashboard.name, annotation["name"]
            );
        }
    }
}

/// target-job-rule, target-instance-rule, target-counter-agg-rule, target-rate-interval-rule.
#[test]
fn queries_filter_by_job_and_instance_and_use_rates_for_counters() {
    let counters: BTreeSet<String> = metrics()
        .flat_map(|metric| match metric.kind {
            MetricKind::Counter => vec![metric.name.to_owned()],
            MetricKind::Histogram => ["bucket", "sum", "count"].map(|part| format!("{}_{part}", metric.name)).to_vec(),
            _ => Vec::new(),
        })
        .collect();
    let known = Known::new();
    let exempt: Vec<Regex> = WITHOUT_TARGET.iter().map(|(pattern, _)| Regex::new(pattern).unwrap()).collect();
    let window = Regex::new(r"\b(rate|irate|increase|changes|delta)\([^\[()]*\[([^\]]*)\]").unwrap();
    for dashboard in Dashboard::all() {
        for query in dashboard.queries() {
            let expression = query.parse();
            let mut selectors = Vec::new();
            collect(&expression, &mut selectors);
            for Selected { selector, has_window } in selectors {
                let name = selector.name.as_deref().unwrap_or_default();
                if !exempt.iter().any(|pattern| pattern.is_match(name)) {
                    for label in ["job", "instance", "cluster"] {
                        assert!(chooses(selector, label), "{}: {name} does not filter by {label}", query.place);
                    }
                }
                if dashboard.name != "exporter" && known.has_label(name, "lock_namespace") {
                    assert!(chooses(selector, "lock_namespace"), "{}: {name} needs a filter by namespace", query.place);
                }
                let grows = counters.contains(name) && !has_window;
                assert!(!grows, "{}: {name} is a counter: use its rate", query.place);
            }
            for captures in window.captures_iter(&query.text) {
                let is_flexible =
                    captures[2] == *"$__rate_interval" || (&captures[1] == "increase" && &captures[2] == "$__range");
                assert!(is_flexible, "{}: {}", query.place, &captures[0]);
            }
        }
    }
}

fn chooses(selector: &VectorSelector, label: &str) -> bool {
    let matchers = &selector.matchers.matchers;
    matchers.iter().any(|matcher| matcher.name == label && matcher.value.starts_with(&format!("${label}")))
}

#[test]
fn panels_do_not_overlap() {
    for dashboard in Dashboard::all() {
        let mut ids = BTreeSet::new();
        let mut taken: BTreeMap<(u64, u64), String> = BTreeMap::new();
        for panel in dashboard.panels() {
            let place = dashboard.place(panel);
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{place}: another panel has this id");
            let side = |name: &str| panel["gridPos"][name].as_u64().unwrap();
            assert!(
                side("w") > 0 && side("h") > 0 && side("x") + side("w") <= 24,
                "{place}: the panel is outside the grid"
            );
            for x in side("x")..side("x") + side("w") {
                for y in side("y")..side("y") + side("h") {
                    let other = taken.insert((x, y), place.clone());
                    assert!(other.is_none(), "{place} covers {}", other.unwrap());
                }
            }
        }
        let height = taken.keys().map(|(_, y)| y + 1).max().unwrap();
        assert_eq!(taken.len() as u64, 24 * height, "{}: the grid has gaps", dashboard.name);
    }
}

/// The first screen for the person on call is about 22 grid units high. It shows the key panels
/// without scrolling.
#[test]
fn the_first_screen_of_the_overview_shows_the_key_panels() {
    let overview = Dashboard::all().pop().unwrap();
    let on_screen =
        |panel: &&Value| panel["gridPos"]["y"].as_u64().unwrap() + panel["gridPos"]["h"].as_u64().unwrap() <= 22;
    let titles: Vec<&str> = overview.panels().iter().filter(on_screen).map(|panel| text(&panel["title"])).collect();
    for title in [
        "Alerts firing",
        "Blind spots",
        "Namespaces",
        "State of each namespace: since when?",
        "Locks lost, as a share of releases and renewals",
    ] {
        assert!(titles.contains(&title), "{title} is not on the first screen: {titles:?}");
    }
}

#[test]
fn dashboards_can_be_imported_by_hand_and_from_files() {
    for dashboard in Dashboard::all() {
        let json = &dashboard.json;
        assert_eq!(json["uid"], format!("redis-lock-{}", dashboard.name));
        // Only Grafana's import dialog fills in these fields. Provisioned files would stay broken.
        assert!(json.get("__inputs").is_none() && json.get("__requires").is_none());
        assert!(json["id"].is_null() && json.get("version").is_none() && json.get("iteration").is_none());
        assert!((39..=41).contains(&json["schemaVersion"].as_u64().unwrap()), "read by Grafana 10 to 13");
        let mut sources = BTreeSet::new();
        walk(json, &mut |key, value| {
            if key == "datasource" {
                sources.insert(text(&value["uid"]).to_owned());
            }
        });
        assert_eq!(sources, BTreeSet::from([DATA_SOURCE.to_owned(), "-- Grafana --".to_owned()]));
    }
}

#[test]
fn colors_are_distinguishable() {
    for dashboard in Dashboard::all() {
        walk(&dashboard.json, &mut |key, value| {
            if let (true, Some(color)) = (["color", "fixedColor", "iconColor", "fill"].contains(&key), value.as_str()) {
                assert!(COLORS.contains(&color) || color == "dash", "{}: {color}", dashboard.name);
            }
        });
    }
}

#[test]
fn links_point_to_existing_dashboards_runbooks_and_exporter_pages() {
    let root = env!("CARGO_MANIFEST_DIR");
    let dashboards = Dashboard::all();
    let mut kinds = BTreeSet::new();
    for dashboard in &dashboards {
        let mut urls = Vec::new();
        walk(&dashboard.json, &mut |key, value| {
            if key == "url" && !text(value).is_empty() {
                urls.push(text(value).to_owned());
            }
        });
        assert!(!urls.is_empty());
        for url in urls {
            let place = format!("{}: {url}", dashboard.name);
            if let Some(rest) = url.strip_prefix("/d/") {
                let (uid, query) = rest.split_once('?').unwrap();
                let target = dashboards.iter().find(|other| other.json["uid"] == uid).expect(&place);
                for part in query.split('&').filter_map(|part| part.strip_prefix("var-")) {
                    assert!(target.variables().contains_key(part.split('=').next().unwrap()), "{place}");
                }
                kinds.insert("dashboard");
            } else if let Some(path) =
                url.strip_prefix("https://github.com/redis-lock-exporter/redis_lock_exporter/blob/main/")
            {
                let page = path.replace("${__value.raw}", "RedisLockNotOwnedRatioHigh");
                assert!(std::path::Path::new(root).join(page).exists(), "{place}");
                kinds.insert("runbook");
            } else {
                let is_field = url.starts_with("http://${__value.raw}/")
                    || url.starts_with("http://${__data.fields.")
                    || url.starts_with("http://${__field.labels.instance}/");
                assert!(is_field, "{place}");
                kinds.insert("exporter");
            }
        }
    }
    assert_eq!(kinds, BTreeSet::from(["dashboard", "exporter", "runbook"]));
    // Checks the reverse direction: each alert links to its dashboard with variables that the
    // dashboard has.
    for (alert, rules) in pack::alerts() {
        for rule in rules {
            let url = &rule.annotations["dashboard_url"];
            // The address of Grafana precedes this path, if there is one.
            let (_, link) = url.rsplit_once("/d/").unwrap();
            let uid = link.split(['?', '{']).next().unwrap_or_default();
            let query = link.split_once('?').map_or("", |(_, query)| query);
            let target =
                dashboards.iter().find(|other| other.json["uid"] == uid).unwrap_or_else(|| panic!("{alert}: {url}"));
            for part in query.split('&').filter_map(|part| part.strip_prefix("var-")) {
                assert!(target.variables().contains_key(part.split('=').next().unwrap()), "{alert}: {url}");
            }
        }
    }
}

/// "How near to a page" divides by the slice counts in the rules.
#[test]
fn dashboards_and_rules_use_the_same_slice_counts() {
    let share = Regex::new(r"^sum_over_time\(([\w:]+)\{[^}]*\}\[(\w+)\]\) / (\d+)$").unwrap();
    let mut n_ways = 0;
    for query in Dashboard::all().iter().flat_map(Dashboard::queries) {
        if let Some(captures) = share.captures(&query.text) {
            let asked = format!("sum_over_time({}[{}]) >= {}\n", &captures[1], &captures[2], &captures[3]);
            assert!(
                pack::rules().iter().any(|rule| rule.expr.contains(&asked)),
                "{}: no rule asks for {asked}",
                query.place
            );
            n_ways += 1;
        }
    }
    assert_eq!(n_ways, 3);
}

/// A link in a table may use other columns if the table does not exclude them.
#[test]
fn table_links_use_existing_columns() {
    let field = Regex::new(r"\$\{__data\.fields\.([a-z_]+)\}").unwrap();
    let mut n_links = 0;
    for dashboard in Dashboard::all() {
        for (place, panel) in dashboard.shown().filter(|(_, panel)| panel["type"] == "table") {
            let organize = panel["transformations"].as_array().unwrap().last().unwrap();
            walk(panel, &mut |key, value| {
                for captures in (key == "url").then(|| field.captures_iter(text(value))).into_iter().flatten() {
                    let excluded = &organize["options"]["excludeByName"][&captures[1]];
                    assert!(excluded.is_null(), "{place}: {} is excluded from the table", &captures[1]);
                    n_links += 1;
                }
            });
        }
    }
    assert!(n_links >= 3, "only {n_links} links were found");
}

/// Calls `see` for every field.
fn walk(value: &Value, see: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                see(key, field);
                walk(field, see);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| walk(item, see)),
        _ => {}
    }
}
