// The stranger's side: node app.js fill|work|read ..., with the kafkajs of NODE_PATH. fill TOPIC INTO REPLICAS FIRST COUNT
// writes numbered records; work TOPIC INTO answers each in a transaction, until it is killed; read TOPIC prints what is committed.
const { Kafka, Partitioners, logLevel } = require('kafkajs')

const KEYS = 7
const PARTITIONS = 2
const QUIET_MS = 15000
const retry = { initialRetryTime: 200, retries: 30, maxRetryTime: 2000 }
const [what, ...words] = process.argv.slice(2)
const brokers = process.env.STRANGERS_BOOTSTRAP.split(',')
const kafka = new Kafka({ clientId: 'strangers', brokers, retry, logLevel: logLevel.ERROR })
const createPartitioner = Partitioners.DefaultPartitioner

async function fill (topic, into, replicas, first, count) {
  const admin = kafka.admin()
  await admin.connect()
  const topics = [topic, into].map(name => ({ topic: name, numPartitions: PARTITIONS, replicationFactor: Number(replicas) }))
  await admin.createTopics({ topics, waitForLeaders: true })
  await admin.disconnect()
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1, createPartitioner })
  await producer.connect()
  const numbers = Array.from({ length: Number(count) }, (_, i) => Number(first) + i)
  await producer.send({ topic, messages: numbers.map(number => ({ key: `key-${number % KEYS}`, value: JSON.stringify({ number }) })) })
  await producer.disconnect()
}

async function work (topic, into) {
  const producer = kafka.producer({ transactionalId: 'strangers', maxInFlightRequests: 1, createPartitioner })
  const groupId = 'strangers'
  const consumer = kafka.consumer({ groupId, sessionTimeout: 6000, heartbeatInterval: 1000, maxBytesPerPartition: 2048, retry })
  consumer.on(consumer.events.CRASH, () => process.exit(1))
  await producer.connect()
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  let turn = Promise.resolve() // one transaction at a time, though partitions come side by side
  const answer = async ({ batch }) => {
    const transaction = await producer.transaction()
    try {
      await transaction.send({ topic: into, messages: batch.messages.map(({ key, value }) => ({ key, value })) })
      const offset = (BigInt(batch.lastOffset()) + 1n).toString()
      const topics = [{ topic, partitions: [{ partition: batch.partition, offset }] }]
      await transaction.sendOffsets({ consumerGroupId: groupId, topics })
      await transaction.commit()
    } catch (error) {
      console.error(error)
      process.exit(1) // the next life goes on at the committed offsets
    }
  }
  await consumer.run({ autoCommit: false, eachBatch: batch => (turn = turn.then(() => answer(batch))) })
}

async function read (topic) {
  const consumer = kafka.consumer({ groupId: 'reader', readUncommitted: false })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  let last = Date.now()
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ message }) => {
      last = Date.now()
      console.log(JSON.stringify([message.key.toString(), JSON.parse(message.value.toString())]))
    }
  })
  while (Date.now() - last < QUIET_MS) await new Promise(resolve => setTimeout(resolve, 200))
  await consumer.disconnect()
}

process.on('unhandledRejection', error => {
  console.error(error)
  process.exit(1)
})
;({ fill, work, read })[what](...words)
