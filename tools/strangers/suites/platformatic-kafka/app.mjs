// The stranger's side: node app.mjs fill|work|epoch ... fill TOPIC INTO REPLICAS FIRST COUNT writes numbered records; work TOPIC
// INTO PROTOCOL answers each in a transaction, until it is killed; epoch TOPIC INTO answers one record in a transaction, as a
// member of the consumer protocol. PROTOCOL: of groups, classic or consumer.
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const found = createRequire(`${process.env.NODE_PATH}/`).resolve('@platformatic/kafka')
const { Admin, Consumer, Producer, stringDeserializers, stringSerializers } = await import(pathToFileURL(found))

const KEYS = 7
const PARTITIONS = 2
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

function worker (name, groupProtocol) {
  const fresh = { producerId: -1n, producerEpoch: -1 } // its default, 0 and 0, asks to go on as producer 0: fenced, as KIP-360 has it
  const own = { ...fresh, idempotent: true, transactionalId: name, serializers: stringSerializers }
  const producer = new Producer({ ...common, ...own, clientId: 'work' })
  const times = { sessionTimeout: 6000, rebalanceTimeout: 6000, heartbeatInterval: 1000 } // suite.toml has the same for the brokers
  const group = { groupId: name, groupProtocol, ...times }
  const consumer = new Consumer({ ...common, ...group, clientId: 'work', autocommit: false, deserializers: stringDeserializers })
  return { producer, consumer }
}

async function start (consumer, topic, onData) {
  const stream = await consumer.consume({ topics: [topic], mode: 'committed', fallbackMode: 'earliest', maxWaitTime: 200 })
  stream.on('data', onData)
  stream.on('error', error => {
    throw error
  })
}

// Offsets of the consumer protocol need the member's epoch, and TxnOffsetCommit of this client carries the classic protocol's
// generation (see epoch). It may be left out: then the transactional id alone keeps a former life from committing.
function unfenced ({ topic, partition, offset, metadata }) {
  const consumer = { ...metadata.consumer, generationId: -1, memberId: '' }
  return { topic, partition, offset, metadata: { ...metadata, consumer } }
}

async function answer ({ producer, consumer }, into, messages, offsetOf) {
  const transaction = await producer.beginTransaction()
  await transaction.addConsumer(consumer)
  await transaction.send({ messages: messages.map(({ key, value }) => ({ topic: into, key, value })) })
  const last = new Map(messages.map(message => [message.partition, message]))
  for (const message of last.values()) await transaction.addOffset(offsetOf(message))
  await transaction.commit()
}

async function work (topic, into, protocol) {
  const own = worker(`strangers-${protocol}`, protocol)
  const waiting = []
  await start(own.consumer, topic, message => waiting.push(message))
  while (true) {
    const taken = waiting.splice(0, 50)
    if (taken.length) await answer(own, into, taken, protocol === 'consumer' ? unfenced : message => message)
    else await sleep(50)
  }
}

async function epoch (topic, into) {
  const own = worker('strangers-epoch', 'consumer')
  const { promise, resolve } = Promise.withResolvers()
  await start(own.consumer, topic, resolve)
  await answer(own, into, [await promise], message => message)
  console.log('committed')
  process.exit(0)
}

for (const event of ['uncaughtException', 'unhandledRejection']) {
  process.on(event, error => {
    console.error(error)
    process.exit(1) // the next life goes on at the committed offsets
  })
}
await ({ fill, work, epoch })[what](...words)
