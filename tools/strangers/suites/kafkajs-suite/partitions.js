// In the place of scripts/addPartitions.sh, which asks a container: TOPIC=... PARTITIONS=... node partitions.js
const { Kafka } = require(`${process.cwd()}/index.js`)

async function main () {
  const admin = new Kafka({ brokers: process.env.STRANGERS_BOOTSTRAP.split(',') }).admin()
  await admin.connect()
  const count = Number(process.env.PARTITIONS)
  await admin.createPartitions({ topicPartitions: [{ topic: process.env.TOPIC, count }] })
  await admin.disconnect()
}

main()
