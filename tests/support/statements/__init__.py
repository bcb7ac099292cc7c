"""Makes statements: types with values, random DDL, queries of views, and workloads."""
