#!/usr/bin/env bash
# Runs jobs/batch_to_kafka.py on Kubernetes, with the options of Kafka in a secret that driver and executors mount.
# Run it as `KUBERNETES=https://host:6443 IMAGE=registry/orders:1 ./submit.sh`, after access.yaml and the Dockerfile next to it, and:
#
#   kubectl create secret generic kafka-client --namespace spark --from-file=producer.properties --from-file=ca.pem
#
# Files that producer.properties names are in the pods' folder /etc/kafka-client, such as /etc/kafka-client/ca.pem.
set -euo pipefail

options=(
    --master "k8s://${KUBERNETES:?the address of the API server}"
    --deploy-mode cluster
    --name orders-to-kafka
    --conf spark.kubernetes.namespace=spark
    --conf spark.kubernetes.authenticate.driver.serviceAccountName=kafka-writer
    --conf spark.kubernetes.container.image="${IMAGE:?the image of driver and executors}"
    --conf spark.kubernetes.driver.secrets.kafka-client=/etc/kafka-client
    --conf spark.kubernetes.executor.secrets.kafka-client=/etc/kafka-client
    --conf spark.executor.instances=2
    --conf spark.executor.memoryOverhead=1g # the producers of the Python workers are outside of the JVM's heap
)
job=(
    --source-format parquet --path "${ORDERS:-s3a://bucket/orders}"
    --key "cast(customer AS STRING)" --value "to_json(struct(*))"
    --producer-config /etc/kafka-client/producer.properties
    --sink-option topic=orders
)
exec spark-submit "${options[@]}" local:///opt/jobs/batch_to_kafka.py "${job[@]}" # local: in the image
