"""The only place that puts concrete parts together."""
