"""The sink as Spark sees it: the only package that knows pyspark."""
