"""The sink as Spark sees it: the only room that knows pyspark."""
