"""The dashboards as Python: what their JSON files are made from. scripts/make_dashboards.py writes them."""

from dashboards import exporter, namespace, overview

# File in dashboards/, and the function that makes its content.
ALL = {"overview": overview.dashboard, "namespace": namespace.dashboard, "exporter": exporter.dashboard}
