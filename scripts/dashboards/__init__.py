"""The dashboards as Python code. scripts/make_dashboards.py writes their JSON files from it."""

from dashboards import exporter, namespace, overview

# The file name in dashboards/, and the function that makes its content.
ALL = {"overview": overview.dashboard, "namespace": namespace.dashboard, "exporter": exporter.dashboard}
