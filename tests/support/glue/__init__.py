"""AWS Glue's schema registry and Amazon's deserializer, to test against."""
