"""Interactive figures of a sweep: data collected here, drawn by Apache ECharts in the page or notebook."""
