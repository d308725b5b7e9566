"""Draws a dashboard as SVG from the results of its queries. It imitates enough of Grafana's core
panels to show what a person would see, with the settings of the dashboard's own JSON (positions,
units, mappings, thresholds, colors, legends). scripts/draw_dashboards.py calls it."""

import math
import re
from html import escape

UNIT_WIDTH, UNIT_HEIGHT, GAP, TOP = 60, 38, 8, 92
GROUND, PANEL, EDGE, TEXT, FAINT, GRID, LINK = "#111217", "#181b1f", "#2c2f36", "#d8d9e3", "#9a9ba7", "#2a2d33", "#6E9FFF"
# Grafana's classic palette, for lines without a color of their own.
PALETTE = ["#73BF69", "#F2CC0C", "#5794F2", "#FF780A", "#B877D9", "#FADE2A", "#8AB8FF", "#FF9830", "#CA95E5", "#37872D", "#E0B400", "#1F60C4"]
NOTE = "Drawn from Prometheus's answers to the dashboard's own queries during a scripted incident, {speed:.0f} times faster than real time. Not a Grafana screenshot."


def number(value, unit, decimals=None):
    """Formats a number as Grafana does."""
    if unit == "percentunit":
        value, text = value * 100, "%"
    elif unit == "s":
        for limit, name in ((3600, "h"), (60, "min"), (1, "s"), (0.001, "ms")):
            if abs(value) >= limit or name == "ms":
                value, text = value / limit, " " + name
                break
        if value == 0:
            text = " s"
    elif unit in ("bytes", "Bps"):
        text = ""
        for name in (" B", " KiB", " MiB", " GiB"):
            text = name + ("/s" if unit == "Bps" else "")
            if abs(value) < 1024:
                break
            value /= 1024
    elif unit == "bool_yes_no":
        return "Yes" if value else "No"
    else:
        text = " ops/s" if unit == "ops" else ""
    if decimals is None:
        decimals = 0 if value == round(value) or abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:.{decimals}f}{text}"


def nice_ticks(low, high, count=4):
    step = 10 ** math.floor(math.log10((high - low) / count or 1))
    for factor in (1, 2, 2.5, 5, 10):
        if (high - low) / (step * factor) <= count:
            step *= factor
            break
    first = math.ceil(low / step - 1e-9)
    return [step * index for index in range(first, int(high / step + 1e-9) + 1)]


class Picture:
    def __init__(self, dashboard, answers, kept, chosen):
        self.dashboard, self.answers, self.chosen = dashboard, answers, chosen
        self.start, self.end, self.at, self.speed = (kept[key] for key in ("start", "end", "at", "speed"))
        self.step = 30 / self.speed
        self.parts = []

    # Primitives.

    def add(self, text):
        self.parts.append(text)

    def rectangle(self, x, y, width, height, fill, **more):
        more = "".join(f' {key.replace("_", "-")}="{value}"' for key, value in more.items())
        self.add(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.1f}" fill="{fill}"{more}/>')

    def text(self, x, y, words, size=12, color=TEXT, anchor="start", weight="normal", room=None):
        """Writes text. With `room` in pixels, text that does not fit is cut."""
        words = str(words)
        if room and len(words) * size * 0.55 > room:
            words = words[: max(int(room / size / 0.55) - 1, 1)] + "…"
        self.add(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{color}" text-anchor="{anchor}" font-weight="{weight}">{escape(words)}</text>')

    # The complete picture.

    def draw(self):
        panels = self.dashboard["panels"]
        rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
        width, height = 24 * UNIT_WIDTH + 2 * GAP, TOP + rows * UNIT_HEIGHT + 2 * GAP
        self.rectangle(0, 0, width, height, GROUND)
        self.text(GAP + 4, 32, self.dashboard["title"], 22, weight="bold")
        minute = (self.at - self.start) * self.speed / 60
        span = (self.end - self.start) * self.speed / 60
        self.text(GAP + 4, 54, NOTE.format(speed=self.speed), 14, "#E69F00")
        self.text(GAP + 4, 74, f"Time series show {span:.0f} minutes as the rules count them; tables and single numbers are of minute {minute:.0f}, the thin white line.", 13, FAINT)
        x = width - GAP
        for variable in reversed(self.dashboard["templating"]["list"][1:]):
            words = f"{variable['label']}: {self.chosen.get(variable['name'], 'All')}"
            room = len(words) * 7 + 16
            x -= room + 8
            self.rectangle(x, 14, room, 24, PANEL, stroke=EDGE, rx=3)
            self.text(x + 8, 31, words, 12.5)
        for panel in panels:
            self.panel(panel)
        style = "font-family=\"'DejaVu Sans', 'Segoe UI', Helvetica, Arial, sans-serif\""
        head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" {style} role="img">'
        title = f"<title>{escape(self.dashboard['title'])}, drawn from its queries, not a Grafana screenshot</title>"
        return "\n".join([head, title, *self.parts, "</svg>", ""])

    def panel(self, panel):
        place = panel["gridPos"]
        x, y = GAP + place["x"] * UNIT_WIDTH, TOP + place["y"] * UNIT_HEIGHT
        width, height = place["w"] * UNIT_WIDTH - GAP, place["h"] * UNIT_HEIGHT - GAP
        if panel["type"] == "row":
            self.text(x + 4, y + 22, "⌄  " + panel["title"], 15, weight="bold")
            return
        self.rectangle(x, y, width, height, PANEL, stroke=EDGE, rx=3)
        self.text(x + 10, y + 20, panel["title"], 13.5, weight="bold", room=width - 20)
        inner = (x + 10, y + 30, width - 20, height - 38)
        answers = self.answers.get(str(panel["id"]), {})
        if not any(answers.values()):
            self.text(x + width / 2, y + height / 2 + 6, panel["fieldConfig"]["defaults"]["noValue"], 13, FAINT, "middle", room=width - 20)
            return
        kinds = {"timeseries": self.time_series, "stat": self.stat, "table": self.table, "state-timeline": self.state_timeline, "heatmap": self.heatmap}
        kinds[panel["type"]](panel, answers, *inner)

    # Shared by all panels.

    def named(self, panel, answers):
        """Yields (name, ref, values) for each series. The name follows from the legend."""
        for target in panel["targets"]:
            for labels, values in answers.get(target["refId"], []):
                name = re.sub(r"{{\s*(\w+)\s*}}", lambda match: labels.get(match[1], ""), target["legendFormat"])
                yield name, target["refId"], values

    def overrides(self, panel, name, ref):
        settings = {}
        for override in panel["fieldConfig"]["overrides"]:
            kind, value = override["matcher"]["id"], override["matcher"]["options"]
            if (kind == "byName" and value == name) or (kind == "byFrameRefID" and value == ref):
                settings |= {entry["id"]: entry["value"] for entry in override["properties"]}
        return settings

    @staticmethod
    def mapped(mappings, value):
        """Returns (text, color) of a value mapping, or None."""
        key = f"{value:.0f}" if isinstance(value, float) else value
        for mapping in mappings or []:
            if key in mapping["options"]:
                return mapping["options"][key]["text"], mapping["options"][key]["color"]
        return None

    @staticmethod
    def threshold(thresholds, value):
        reached = [step["color"] for step in thresholds["steps"] if step["value"] is None or value >= step["value"]]
        return reached[-1]

    def minutes(self, x, y, width, height):
        """Draws the time axis under a plot, and the marks of annotations in the plot."""
        total = (self.end - self.start) * self.speed / 60
        for minute in range(0, int(total) + 1, 10):
            at = x + width * minute / total
            self.add(f'<line x1="{at:.1f}" y1="{y:.1f}" x2="{at:.1f}" y2="{y + height:.1f}" stroke="{GRID}"/>')
            self.text(at, y + height + 14, f"{minute} min" if minute else "0", 10.5, FAINT, "middle")
        for annotation in filter(lambda one: one["enable"], self.dashboard["annotations"]["list"]):
            for begin in self.begins(self.answers.get(annotation["name"], {}).get("title", [])):
                at = self.across(begin, x, width)
                self.add(f'<line x1="{at:.1f}" y1="{y:.1f}" x2="{at:.1f}" y2="{y + height:.1f}" stroke="{annotation["iconColor"]}" stroke-dasharray="3 3" opacity="0.8"/>')
        at = self.across(self.at, x, width)
        self.add(f'<line x1="{at:.1f}" y1="{y:.1f}" x2="{at:.1f}" y2="{y + height:.1f}" stroke="#ffffff" stroke-width="0.8" opacity="0.7"/>')

    def begins(self, series):
        """Returns when each region of an annotation begins. A region that exists at the first step
        began earlier and is left out."""
        moments = set()
        for _, values in series:
            before = self.start
            for moment, _ in values:
                if moment - before > 1.5 * self.step:
                    moments.add(moment)
                before = moment
        return moments

    def across(self, moment, x, width):
        return x + width * (moment - self.start) / (self.end - self.start)

    def pieces(self, values):
        """Yields runs of values without a gap."""
        run = []
        for moment, value in values:
            if run and moment - run[-1][0] > 1.5 * self.step:
                yield run
                run = []
            run.append((moment, value))
        if run:
            yield run

    # The types of panels.

    def time_series(self, panel, answers, x, y, width, height):
        defaults = panel["fieldConfig"]["defaults"]
        stacked = defaults["custom"]["stacking"]["mode"] == "normal"
        series = []
        for index, (name, ref, values) in enumerate(self.named(panel, answers)):
            settings = self.overrides(panel, name, ref)
            color = settings.get("color", {}).get("fixedColor", PALETTE[index % len(PALETTE)])
            series.append((name, color, "custom.lineStyle" in settings, dict(values), settings.get("unit", defaults["unit"])))
        # In a panel with many lines, the lines with the highest values come first.
        series.sort(key=lambda one: -max(one[3].values()))
        steps = sorted({moment for one in series for moment in one[3]})
        base = dict.fromkeys(steps, 0.0)
        layers = []
        for name, color, dashed, values, unit in series:
            if stacked and not dashed:
                top = {moment: base[moment] + values.get(moment, 0.0) for moment in steps}
                layers.append((color, dict(base), top))
                base = top
        highest = max([*base.values()] if layers else [0.0])
        highest = max([highest, *(max(values.values()) for _, _, dashed, values, _ in series if dashed or not stacked)])
        high = defaults.get("max", highest * 1.08 or 1)
        left, rows = 58, min(len(series), 5 if height > 240 else 4)
        plot = (x + left, y + 4, width - left - 8, height - 24 - rows * 16)
        for tick in nice_ticks(0, high):
            at = plot[1] + plot[3] * (1 - tick / high)
            self.add(f'<line x1="{plot[0]:.1f}" y1="{at:.1f}" x2="{plot[0] + plot[2]:.1f}" y2="{at:.1f}" stroke="{GRID}"/>')
            self.text(plot[0] - 6, at + 4, number(tick, defaults["unit"]), 10.5, FAINT, "end")
        self.minutes(*plot)

        def point(moment, value):
            return f"{self.across(moment, plot[0], plot[2]):.1f},{plot[1] + plot[3] * (1 - min(value, high) / high):.1f}"
        for color, low, top in layers:
            if max(top[moment] - low[moment] for moment in steps) <= 0:
                continue
            outline = [point(moment, top[moment]) for moment in steps] + [point(moment, low[moment]) for moment in reversed(steps)]
            self.add(f'<polygon points="{" ".join(outline)}" fill="{color}" fill-opacity="0.55" stroke="{color}" stroke-width="0.8"/>')
        for _, color, dashed, values, _ in reversed(series):
            if stacked and not dashed:
                continue
            for run in self.pieces(sorted(values.items())):
                style = ' stroke-dasharray="8 6"' if dashed else ""
                self.add(f'<polyline points="{" ".join(point(*pair) for pair in run)}" fill="none" stroke="{color}" stroke-width="1.8" stroke-linejoin="round"{style}/>')
        calc = panel["options"]["legend"]["calcs"][-1]
        bottom = y + height - rows * 16 + 8
        for index, (name, color, dashed, values, unit) in enumerate(series[:rows]):
            at = bottom + index * 16
            self.add(f'<line x1="{x:.1f}" y1="{at - 4:.1f}" x2="{x + 16:.1f}" y2="{at - 4:.1f}" stroke="{color}" stroke-width="4"{" stroke-dasharray=" + chr(34) + "5 3" + chr(34) if dashed else ""}/>')
            more = f"   … and {len(series) - rows} more" if index == rows - 1 and len(series) > rows else ""
            self.text(x + 22, at, name + more, 11.5, room=width - 120)
            value = {"max": max, "min": min, "sum": sum}.get(calc, max)(values.values())
            self.text(x + width, at, f"{calc} {number(value, unit, 0 if calc == 'sum' else defaults.get('decimals'))}", 11.5, FAINT, "end")

    def stat(self, panel, answers, x, y, width, height):
        defaults = panel["fieldConfig"]["defaults"]
        shown = [(name, self.overrides(panel, name, ref), values[0][1]) for name, ref, values in self.named(panel, answers)]
        for index, (name, settings, value) in enumerate(shown):
            part = width / len(shown)
            left = x + index * part
            mapped = self.mapped(settings.get("mappings", defaults["mappings"]), value)
            words, color = mapped or (number(value, defaults["unit"], defaults.get("decimals")), self.threshold(settings.get("thresholds", defaults["thresholds"]), value))
            self.rectangle(left, y, part - (4 if len(shown) > 1 else 0), height, color, rx=3)
            ink = "#111217" if color in ("#F0E442", "#E69F00", "#56B4E9", "#999999") else "#ffffff"
            named = panel["options"]["textMode"] == "value_and_name"
            size = min(30, part / len(words) / 0.68)
            if named:
                self.text(left + part / 2, y + 22, name, 13, ink, "middle", room=part)
            self.text(left + part / 2, y + height / 2 + (26 if named else 12), words, size, ink, "middle", "bold")

    def table(self, panel, answers, x, y, width, height):
        """Draws a table. Rows of all queries with equal labels are merged, as by the
        transformations of the panel."""
        organize = panel["transformations"][-1]["options"]
        columns = {o["matcher"]["options"]: {entry["id"]: entry["value"] for entry in o["properties"]} for o in panel["fieldConfig"]["overrides"]}
        shared = None
        for target in panel["targets"]:
            labels = {frozenset(labels) for labels, _ in answers.get(target["refId"], [])}
            shared = frozenset.intersection(*labels, *([shared] if shared is not None else [])) if labels else shared
        rows = {}
        for target in panel["targets"]:
            column = f"Value #{target['refId']}" if len(panel["targets"]) > 1 else "Value"
            for index, (labels, values) in enumerate(answers.get(target["refId"], [])):
                key = tuple(sorted((name, labels[name]) for name in shared)) if len(panel["targets"]) > 1 else index
                rows.setdefault(key, {}).update({**labels, column: values[0][1]})
        rows = list(rows.values())
        fields = [field for field in columns if field not in organize["excludeByName"] and any(field in row for row in rows)]
        names = {columns[field]["displayName"]: field for field in fields}
        for order in reversed(panel["options"]["sortBy"]):
            field = names.get(order["displayName"])
            rows.sort(key=lambda row: (row.get(field, -math.inf if field.startswith("Value") else ""),), reverse=order["desc"])
        widths = {field: columns[field].get("custom.width", 160 if field == fields[0] else 100) for field in fields}
        scale = width / sum(widths.values())
        left = x
        for field in fields:
            self.text(left + 4, y + 12, columns[field]["displayName"], 11.5, LINK, weight="bold", room=widths[field] * scale - 6)
            left += widths[field] * scale
        line = 22
        fitting = int((height - 20) // line)
        for index, row in enumerate(rows[:fitting]):
            top, left = y + 20 + index * line, x
            self.add(f'<line x1="{x:.1f}" y1="{top:.1f}" x2="{x + width:.1f}" y2="{top:.1f}" stroke="{GRID}"/>')
            for field in fields:
                self.cell(panel, columns[field], row.get(field), left, top, widths[field] * scale, line)
                left += widths[field] * scale
        if len(rows) > fitting:
            self.text(x + width, y - 10, f"{fitting} of {len(rows)} rows, scroll for more", 11, FAINT, "end")

    def cell(self, panel, column, value, x, y, width, height):
        unit, color, fill = column.get("unit", "short"), TEXT, None
        kind = column.get("custom.cellOptions", {}).get("type")
        if value is None:
            words, color = column.get("noValue", ""), FAINT
        elif isinstance(value, str):
            mapped = self.mapped(column.get("mappings"), value)
            words, color = mapped or (value, LINK if "links" in column else TEXT)
        else:
            mapped = self.mapped(column.get("mappings"), value)
            ago = max(self.at - value / 1000, 0) * self.speed / 60 if unit == "dateTimeFromNow" else 0
            words = mapped[0] if mapped else f"{ago:.0f} min ago" if unit == "dateTimeFromNow" else number(value, unit, column.get("decimals"))
            shade = mapped[1] if mapped else self.threshold(column["thresholds"], value) if "thresholds" in column else None
            if kind == "color-text" and shade:
                color = shade
            elif kind == "color-background" and shade not in (None, "transparent", "text"):
                fill = shade
            elif kind == "gauge":
                room = width - 62
                self.rectangle(x + 4, y + 6, room, height - 11, GRID)
                self.rectangle(x + 4, y + 6, room * min(value / column["max"], 1), height - 11, shade)
                self.text(x + room + 10, y + 15.5, words, 12, shade)
                return
        if fill:
            self.rectangle(x + 1, y + 1.5, width - 4, height - 2.5, fill, rx=2)
            color = "#111217" if fill in ("#F0E442", "#E69F00", "#56B4E9", "#999999") else "#ffffff"
        self.text(x + 5, y + 15.5, words, 12, color, room=width - 6)

    def state_timeline(self, panel, answers, x, y, width, height):
        series = list(self.named(panel, answers))
        series.sort(key=lambda one: (-max(value for _, value in one[2]), one[0]))
        left = 8 + 7 * min(max(len(name) for name, _, _ in series), 30)
        plot = (x + left, y, width - left - 6, height - 18)
        line = min(plot[3] / len(series), 26)
        fitting = int(plot[3] // max(line, 13))
        self.minutes(*plot)
        for index, (name, _, values) in enumerate(series[:fitting]):
            top = plot[1] + index * plot[3] / min(len(series), fitting)
            room = plot[3] / min(len(series), fitting)
            self.text(plot[0] - 6, top + room / 2 + 4, name, 11, anchor="end", room=left)
            begin, state, before = None, None, None
            for moment, value in [*values, (None, None)]:
                ended = moment is None or value != state or moment - before > 1.5 * self.step
                if ended and begin is not None:
                    words, color = self.mapped(panel["fieldConfig"]["defaults"]["mappings"], state)
                    start, end = self.across(begin, plot[0], plot[2]), self.across(min(before + self.step, self.end), plot[0], plot[2])
                    self.rectangle(start, top + 1.5, end - start, room - 3, color, opacity=0.9)
                    if (end - start) > len(words) * 6.6 + 8 and room > 11:
                        self.text(start + 4, top + room / 2 + 4, words, 10.5, "#111217" if color not in ("#009E73", "#D55E00") else "#ffffff")
                if ended:
                    begin, state = moment, value
                before = moment
        at = self.across(self.at, plot[0], plot[2])
        self.add(f'<line x1="{at:.1f}" y1="{plot[1]:.1f}" x2="{at:.1f}" y2="{plot[1] + plot[3]:.1f}" stroke="#ffffff" stroke-width="1"/>')

    def heatmap(self, panel, answers, x, y, width, height):
        buckets = sorted(((float(labels["le"]), dict(values)) for labels, values in answers["A"]), key=lambda bucket: bucket[0])
        steps = sorted({moment for _, values in buckets for moment in values})
        plot = (x + 58, y + 4, width - 66, height - 26)
        room = plot[3] / len(buckets)
        cells, below = [], dict.fromkeys(steps, 0.0)
        for index, (bound, values) in enumerate(buckets):
            cells += [(index, moment, max(values.get(moment, 0.0) - below[moment], 0.0)) for moment in steps]
            below = {moment: values.get(moment, 0.0) for moment in steps}
            words = number(bound, "percentunit") if math.isfinite(bound) else "100%"
            self.text(plot[0] - 6, plot[1] + plot[3] - (index + 1) * room + 4, words, 10.5, FAINT, "end")
        most = max(count for _, _, count in cells) or 1
        cell = plot[2] * self.step / (self.end - self.start)
        for index, moment, count in cells:
            if count > 0.01:
                share = (count / most) ** 0.5
                color = "#" + "".join(f"{round(low + (high - low) * share):02x}" for low, high in ((22, 222), (45, 235), (90, 247)))
                self.rectangle(self.across(moment, plot[0], plot[2]) - cell / 2, plot[1] + plot[3] - (index + 1) * room + 0.5, cell - 0.3, room - 1, color)
        self.minutes(*plot)
