"""A record in other people's formats: pure functions over events, and the one place that speaks OpenTelemetry."""
