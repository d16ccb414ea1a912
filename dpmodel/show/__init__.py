"""What is shown: explanations, figures, reports. ``figures`` draws what it is handed and knows nobody above it."""
