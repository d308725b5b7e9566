// What our dashboards are checked against: Grafana's published types, with enums as the plain values that JSON has. Which generation
// `schema/...` is, the tsconfig.*.json say. scripts/check_dashboards.py adds the dashboards as literals and runs the compiler.
import type { AnnotationQuery, Dashboard, FieldConfig, Panel, RowPanel } from "schema/dashboard";
import type { FieldConfig as HeatmapField, Options as HeatmapOptions } from "schema/heatmap";
import type { Options as StatOptions } from "schema/stat";
import type { FieldConfig as TimelineField, Options as TimelineOptions } from "schema/statetimeline";
import type { FieldConfig as TableField, Options as TableOptions } from "schema/table";
import type { FieldConfig as SeriesField, Options as SeriesOptions } from "schema/timeseries";
// Not published with generation 13 any more; the fields that we use are the same.
import type { PrometheusDataQuery } from "schema/prometheus";

type Plain<T> = T extends string ? `${T}` : T extends number | boolean | null | undefined | unknown[] ? T extends (infer U)[] ? Plain<U>[] : T
  : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;

type Target = Plain<PrometheusDataQuery>;
type Override = { matcher: { id: string; options: string }; properties: { id: string; value: unknown }[] };
type Kind<Name extends string, Options, Field> = Omit<Plain<Panel>, "type" | "options" | "fieldConfig" | "targets"> & {
  type: Name; options: Partial<Plain<Options>>; targets: Target[];
  fieldConfig: { defaults: Omit<Plain<FieldConfig>, "custom"> & { custom?: Partial<Plain<Field>> }; overrides: Override[] };
};
type AnyPanel = Kind<"timeseries", SeriesOptions, SeriesField> | Kind<"stat", StatOptions, object> | Kind<"table", TableOptions, TableField>
  | Kind<"state-timeline", TimelineOptions, TimelineField> | Kind<"heatmap", HeatmapOptions, HeatmapField> | Plain<RowPanel>;

// Fields of the Prometheus data source that Grafana reads beside those of every annotation.
type Annotation = Plain<AnnotationQuery> & { expr?: string; titleFormat?: string; textFormat?: string; tagKeys?: string; useValueForTime?: boolean };
// `definition` is what the list of variables shows.
type Variable = NonNullable<NonNullable<Plain<Dashboard>["templating"]>["list"]>[number] & { definition?: string };

export type Checked = Omit<Plain<Dashboard>, "panels" | "annotations" | "templating"> & {
  panels: AnyPanel[]; annotations: { list: Annotation[] }; templating: { list: Variable[] };
};
