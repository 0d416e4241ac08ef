"""Reports: events and findings in the forms that people and machines read. One file a format."""
