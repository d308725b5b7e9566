"""Grafana's classic dashboard model, as far as our dashboards use it: only core panels, and fields
that Grafana 10 to 13 read.

Each panel has a fixed id that never changes, because links to single panels (`viewPanel=`) use it.
Positions are computed: rows from top to bottom, panels from left to right."""

DATA_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
REPOSITORY = "https://github.com/redis-lock-exporter/redis_lock_exporter/blob/main"
# The variables that a link from one dashboard to another keeps.
KEPT = "${datasource:queryparam}&${cluster:queryparam}&${job:queryparam}&${instance:queryparam}&${__url_time_range}"

# The colors of Okabe and Ito, which are distinguishable with any color vision, on dark and light
# backgrounds.
GOOD, INFO, NOTICE, WARNING, BAD, NEUTRAL = "#009E73", "#56B4E9", "#F0E442", "#E69F00", "#D55E00", "#999999"
BLUE, PURPLE = "#0072B2", "#CC79A7"


def target(expr, legend="", *, instant=False, heatmap=False):
    query_format = "heatmap" if heatmap else "table" if instant else "time_series"
    return {"expr": expr, "legendFormat": legend or "__auto", "format": query_format, "instant": instant, "range": not instant}


def fixed(color):
    return {"mode": "fixed", "fixedColor": color}


def steps(*pairs, base=GOOD):
    """Thresholds: the color applies from its value on, and `base` applies below the first value."""
    colors = [{"color": base, "value": None}, *({"color": color, "value": value} for value, color in pairs)]
    return {"mode": "absolute", "steps": colors}


def mapping(**texts):
    """Value mappings: n1="text:color" for -1, p0="text:color" for 0."""
    options = {}
    for index, (value, text) in enumerate(texts.items()):
        words, color = text.rsplit(":", 1)
        options[value[1:] if value[0] == "p" else "-" + value[1:]] = {"text": words, "color": color, "index": index}
    return [{"type": "value", "options": options}]


def override(matcher, value, **properties):
    """`matcher`: byName, byRegexp or byFrameRefID. Property names have `_` instead of `.`:
    custom_lineStyle."""
    named = [{"id": name.replace("custom_", "custom."), "value": setting} for name, setting in properties.items()]
    return {"matcher": {"id": matcher, "options": value}, "properties": named}


def limit(*ref_ids, color=BAD):
    """The style of series that are limits and not measurements: dashed, never filled or stacked."""
    style = {"fill": "dash", "dash": [8, 6]}
    return [
        override("byFrameRefID", ref_id, color=fixed(color), custom_lineStyle=style, custom_lineWidth=2, custom_fillOpacity=0,
                 custom_stacking={"mode": "none", "group": "A"}, custom_lineInterpolation="stepAfter")
        for ref_id in ref_ids
    ]


def colors(**by_name):
    return [override("byName", name, color=fixed(color)) for name, color in by_name.items()]


def link(title, url, *, new_tab=False):
    return {"title": title, "url": url, "targetBlank": new_tab}


NAMESPACE_LINK = link("Open namespace ${__field.labels.lock_namespace}",
                      "/d/redis-lock-namespace?var-lock_namespace=${__field.labels.lock_namespace}&" + KEPT)


def _panel(kind, number, title, description, targets, defaults, options, *, overrides=(), links=(), **others):
    for index, query in enumerate(targets):
        query["refId"] = chr(ord("A") + index)
        query["datasource"] = DATA_SOURCE
        query["editorMode"] = "code"
    return {
        "id": number, "type": kind, "title": title, "description": description, "datasource": DATA_SOURCE, "targets": targets,
        "fieldConfig": {"defaults": {**defaults, **({"links": list(links)} if links else {})}, "overrides": list(overrides)},
        "options": options, **others,
    }


def time_series(number, title, description, targets, unit, no_value, *, least=0, most=None, stacked=False, bars=False, decimals=None,
                overrides=(), links=(), calcs=("lastNotNull", "max")):
    custom = {
        "drawStyle": "bars" if bars else "line", "lineWidth": 1 if stacked else 2, "fillOpacity": 60 if bars else 35 if stacked else 0,
        "showPoints": "never", "spanNulls": False, "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
    }
    defaults = {"unit": unit, "noValue": no_value, "color": {"mode": "palette-classic"}, "custom": custom}
    defaults |= {"min": least} if least is not None else {}
    defaults |= {"max": most} if most is not None else {}
    defaults |= {"decimals": decimals} if decimals is not None else {}
    options = {
        "legend": {"displayMode": "table", "placement": "bottom", "showLegend": True, "calcs": list(calcs)},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return _panel("timeseries", number, title, description, targets, defaults, options, overrides=overrides, links=links)


def stat(number, title, description, targets, unit, no_value, thresholds, *, mappings=(), links=(), overrides=(), decimals=None, named=False):
    """A panel of the current value. With a range query it would also show the last value of a
    series that has ended."""
    targets = [{**query, "instant": True, "range": False} for query in targets]
    defaults = {"unit": unit, "noValue": no_value, "color": {"mode": "thresholds"}, "thresholds": thresholds, "mappings": list(mappings)}
    defaults |= {"decimals": decimals} if decimals is not None else {}
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "textMode": "value_and_name" if named else "auto",
        "colorMode": "background_solid", "graphMode": "none", "justifyMode": "center",
        "orientation": "auto",
    }
    return _panel("stat", number, title, description, targets, defaults, options, links=links, overrides=overrides)


def state_timeline(number, title, description, targets, mappings, no_value, *, links=()):
    custom = {"fillOpacity": 85, "lineWidth": 0}
    defaults = {"unit": "short", "noValue": no_value, "color": {"mode": "thresholds"}, "thresholds": steps(base=NEUTRAL),
                "mappings": mappings, "custom": custom}
    options = {
        "mergeValues": True, "showValue": "auto", "rowHeight": 0.85, "alignValue": "left",
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False, "calcs": []},
        "tooltip": {"mode": "single", "sort": "none"},
    }
    return _panel("state-timeline", number, title, description, targets, defaults, options, links=links)


def heatmap(number, title, description, targets, unit, no_value):
    defaults = {"noValue": no_value, "unit": "short", "custom": {"hideFrom": {"legend": False, "tooltip": False, "viz": False}}}
    options = {
        "calculate": False, "cellGap": 1, "cellValues": {"unit": "short", "decimals": 1},
        # One hue that starts at the background color of the theme. It works on dark and light
        # backgrounds and needs no color vision.
        "color": {"mode": "scheme", "scheme": "Blues", "steps": 64, "exponent": 0.5, "fill": BLUE, "reverse": False, "scale": "exponential"},
        "exemplars": {"color": PURPLE}, "filterValues": {"le": 1e-9}, "legend": {"show": True}, "rowsFrame": {"layout": "auto"},
        "showValue": "never", "tooltip": {"mode": "single", "yHistogram": False, "showColorScale": True},
        "yAxis": {"axisPlacement": "left", "unit": unit, "reverse": False},
    }
    return _panel("heatmap", number, title, description, targets, defaults, options)


def table(number, title, description, targets, columns, no_value, *, sort_by, hidden=(), merged=True):
    """`columns`: {field: (title, properties)}. The fields of queries are `Value #A` and so on, in
    the order of the columns."""
    properties = [override("byName", field, displayName=name, **settings) for field, (name, settings) in columns.items()]
    defaults = {"unit": "short", "noValue": no_value, "color": {"mode": "thresholds"}, "thresholds": steps(base="text"),
                "custom": {"align": "auto", "cellOptions": {"type": "auto"}, "filterable": True, "inspect": False}}
    options = {"showHeader": True, "cellHeight": "sm", "sortBy": [{"displayName": name, "desc": descending} for name, descending in sort_by]}
    organize = {
        "excludeByName": {name: True for name in ("Time", "component", "__name__", *hidden)}, "renameByName": {},
        "indexByName": {field: index for index, field in enumerate(columns)},
    }
    transformations = [{"id": "merge", "options": {}}] if merged else []
    return _panel("table", number, title, description, targets, defaults, options, overrides=properties,
                  transformations=[*transformations, {"id": "organize", "options": organize}])


def colored(cell="color-background", **settings):
    """Properties of a column whose cells are colored by thresholds or mappings."""
    options = {"type": cell, "mode": "basic"} if cell == "color-background" else {"type": cell}
    return {"custom_cellOptions": options, **settings}


def row(number, title):
    return {"id": number, "type": "row", "title": title, "collapsed": False, "panels": []}


def lay_out(rows):
    """`rows`: (height, [(width, panel), ...]), or a row heading alone."""
    panels, y = [], 0
    for entry in rows:
        if isinstance(entry, dict):
            panels.append({**entry, "gridPos": {"h": 1, "w": 24, "x": 0, "y": y}})
            y += 1
            continue
        height, members = entry
        x = 0
        for width, panel in members:
            panels.append({**panel, "gridPos": {"h": height, "w": width, "x": x, "y": y}})
            x += width
        y += height
    return panels


def _variable(name, label, query, all_value=".+"):
    return {
        "name": name, "label": label, "type": "query", "datasource": DATA_SOURCE, "definition": query,
        "query": {"query": query, "refId": f"Variable-{name}"}, "regex": "", "refresh": 2, "sort": 1, "multi": True, "includeAll": True,
        "allValue": all_value, "hide": 0, "skipUrlSync": False, "options": [], "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def variables(with_namespace):
    job = 'cluster=~"$cluster"'
    result = [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "regex": "", "refresh": 1, "multi": False,
         "includeAll": False, "hide": 0, "skipUrlSync": False, "options": []},
        # Targets may have no such label, so All also matches a missing label.
        _variable("cluster", "Cluster", "label_values(redis_lock_exporter_build_info, cluster)", ".*"),
        _variable("job", "Job", f"label_values(redis_lock_exporter_build_info{{{job}}}, job)"),
        _variable("instance", "Instance", f'label_values(redis_lock_exporter_build_info{{{job},job=~"$job"}}, instance)'),
    ]
    if with_namespace:
        query = f'label_values(redis_lock_namespace_info{{{job},job=~"$job",instance=~"$instance"}}, lock_namespace)'
        result.append(_variable("lock_namespace", "Lock namespace", query))
    return result


def annotation(name, color, expr, title, text, *, enabled=True):
    return {"name": name, "datasource": DATA_SOURCE, "enable": enabled, "hide": False, "iconColor": color, "expr": expr, "titleFormat": title,
            "textFormat": text, "tagKeys": "instance,redis,severity", "useValueForTime": False}


def dashboard(name, title, description, rows, annotations, *, with_namespace, since="now-1h"):
    built_in = {"name": "Annotations & Alerts", "builtIn": 1, "datasource": {"type": "grafana", "uid": "-- Grafana --"}, "enable": True, "hide": True,
                "iconColor": INFO, "type": "dashboard"}
    others = {"title": "Redis locks", "type": "dashboards", "tags": ["redis-lock"], "asDropdown": False, "includeVars": True, "keepTime": True,
              "targetBlank": False, "icon": "external link", "tooltip": "", "url": ""}
    runbooks = {"title": "Runbooks", "type": "link", "tags": [], "asDropdown": False, "includeVars": False, "keepTime": False, "targetBlank": True,
                "icon": "doc", "tooltip": "What each alert means and what to do", "url": f"{REPOSITORY}/docs/runbooks/README.md"}
    return {
        "id": None, "uid": f"redis-lock-{name}", "title": f"Redis locks / {title}", "description": description, "tags": ["redis-lock", "redis"],
        "schemaVersion": 39, "editable": False, "graphTooltip": 1, "timezone": "browser", "refresh": "30s",
        "time": {"from": since, "to": "now"}, "timepicker": {}, "fiscalYearStartMonth": 0, "liveNow": False,
        "links": [others, runbooks], "templating": {"list": variables(with_namespace)}, "annotations": {"list": [built_in, *annotations]},
        "panels": lay_out(rows),
    }
