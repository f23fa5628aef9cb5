// The stranger's side: node app.mjs fill|work|read ... fill TOPIC INTO REPLICAS FIRST COUNT writes numbered records; work TOPIC
// INTO answers each in a transaction, until it is killed; read TOPIC prints what is committed.
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const found = createRequire(`${process.env.NODE_PATH}/`).resolve('@platformatic/kafka')
const { Admin, Consumer, Producer, stringDeserializers, stringSerializers } = await import(pathToFileURL(found))

const KEYS = 7
const PARTITIONS = 2
const QUIET_MS = 15000
const [what, ...words] = process.argv.slice(2)
const bootstrapBrokers = process.env.STRANGERS_BOOTSTRAP.split(',')
const common = { bootstrapBrokers, retries: 50, retryDelay: 500 }
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

async function fill (topic, into, replicas, first, count) {
  const admin = new Admin({ ...common, clientId: 'admin' })
  const there = await admin.listTopics()
  const topics = [topic, into].filter(name => !there.includes(name))
  if (topics.length) await admin.createTopics({ topics, partitions: PARTITIONS, replicas: Number(replicas) })
  await admin.close()
  const producer = new Producer({ ...common, clientId: 'fill', idempotent: true, serializers: stringSerializers })
  const numbers = Array.from({ length: Number(count) }, (_, i) => Number(first) + i)
  const messages = numbers.map(number => ({ topic, key: `key-${number % KEYS}`, value: JSON.stringify({ number }) }))
  await producer.send({ messages })
  await producer.close()
}

async function work (topic, into) {
  const transactionalId = 'strangers'
  const fresh = { producerId: -1n, producerEpoch: -1 } // its default, 0 and 0, asks to go on as producer 0: fenced, as KIP-360 has it
  const own = { ...fresh, idempotent: true, transactionalId, serializers: stringSerializers }
  const producer = new Producer({ ...common, ...own, clientId: 'work' })
  const group = { groupId: 'strangers', sessionTimeout: 6000, rebalanceTimeout: 6000, heartbeatInterval: 1000 }
  const consumer = new Consumer({ ...common, ...group, clientId: 'work', autocommit: false, deserializers: stringDeserializers })
  const stream = await consumer.consume({ topics: [topic], mode: 'committed', fallbackMode: 'earliest', maxWaitTime: 200 })
  const waiting = []
  stream.on('data', message => waiting.push(message))
  stream.on('error', error => {
    throw error
  })
  while (true) {
    const taken = waiting.splice(0, 50)
    if (!taken.length) {
      await sleep(50)
      continue
    }
    const transaction = await producer.beginTransaction()
    await transaction.addConsumer(consumer)
    await transaction.send({ messages: taken.map(({ key, value }) => ({ topic: into, key, value })) })
    const last = new Map(taken.map(message => [message.partition, message]))
    for (const message of last.values()) await transaction.addOffset(message)
    await transaction.commit()
  }
}

async function read (topic) {
  const consumer = new Consumer({ ...common, clientId: 'read', groupId: 'reader', deserializers: stringDeserializers })
  const stream = await consumer.consume({ topics: [topic], mode: 'earliest', isolationLevel: 1 })
  let last = Date.now()
  stream.on('data', ({ key, value }) => {
    last = Date.now()
    console.log(JSON.stringify([key, JSON.parse(value)]))
  })
  while (Date.now() - last < QUIET_MS) await sleep(200)
  await consumer.close(true)
}

for (const event of ['uncaughtException', 'unhandledRejection']) {
  process.on(event, error => {
    console.error(error)
    process.exit(1) // the next life goes on at the committed offsets
  })
}
await ({ fill, work, read })[what](...words)
