"""Files into tables: records, jobs, instances, and what a crash left undone."""
