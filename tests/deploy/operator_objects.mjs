// Checks objects of the Prometheus Operator, read as YAML from standard input, against its published schemas.
import { readFileSync } from "node:fs";
import * as operator from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1";
import { parseAllDocuments } from "yaml";

let checked = 0;
for (const document of parseAllDocuments(readFileSync(0, "utf8"))) {
  const object = document.toJS();
  const Kind = operator[object.kind];
  if (!Kind) throw new Error(`no schema for ${object.kind}`);
  try {
    new Kind(object).validate();
    checked += 1;
  } catch (error) {
    console.error(`${object.kind} ${object.metadata.name}: ${error.message}`);
    process.exitCode = 1;
  }
}
console.log(checked);
