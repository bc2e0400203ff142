"""Tables in a lake: Parquet in, Parquet out, by DuckDB on one machine or by Spark on many (the extra 'spark')."""
