// OpenWhisk's published client against a running daemon that serves the function html.
// host/squeezy/tests/openwhisk.rs starts both. usage: client.mjs URL KEY

import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import openwhisk from 'openwhisk'

const [apihost, key] = process.argv.slice(2)
const ow = openwhisk({ apihost, api_key: key })
const image = { kind: 'blackbox', image: 'html' }

// The error of an operation.
async function failure (operation) {
  try {
    await operation
  } catch (error) {
    return error
  }
  assert.fail('it should have failed')
}

async function until (what, limitMs = 60000) {
  const end = Date.now() + limitMs
  for (;;) {
    try {
      return await what()
    } catch (error) {
      if (Date.now() > end) throw error
      await sleep(100)
    }
  }
}

assert.deepEqual(await ow.namespaces.list(), ['guest'])
assert.deepEqual((await ow.namespaces.get('_')).rules, [])

// Actions.
const made = await ow.actions.create({
  name: 'page', action: '', kind: 'blackbox', exec: { image: 'html' },
  params: { username: 'default', items: 2 }, annotations: { made: 'here' }, limits: { timeout: 50000 }
})
assert.equal(made.exec.image, 'html')
assert.equal(made.limits.timeout, 50000)
assert.deepEqual(made.annotations, [{ key: 'made', value: 'here' }])
assert.equal((await failure(ow.actions.create({ name: 'page', action: { exec: image } }))).statusCode, 409)
const updated = await ow.actions.update({ name: 'page', params: { items: 3 } })
assert.notEqual(updated.version, made.version)
assert.equal((await ow.actions.get('page')).version, updated.version)
assert.deepEqual((await ow.actions.list()).map(action => action.name), ['html', 'page'])
assert.equal((await ow.actions.list({ limit: 1, skip: 1 }))[0].name, 'page')
assert.deepEqual(await ow.actions.list({ count: true }), { actions: 2 })
assert.equal((await failure(ow.actions.get('none'))).statusCode, 404)

// Calls.
const whole = await ow.actions.invoke({ name: 'page', blocking: true })
assert.equal(whole.response.result.items, 3)
assert.equal(whole.response.success, true)
const result = await ow.actions.invoke({ name: '/_/html', blocking: true, result: true, params: { items: 1 } })
assert.equal(result.items, 1)
const failed = await failure(ow.actions.invoke({ name: 'page', blocking: true, params: { items: 'many' } }))
assert.equal(failed.statusCode, 502)
assert.equal(failed.error.response.status, 'action developer error')
const { activationId } = await ow.actions.invoke({ name: 'page', params: { items: 4 } })
assert.match(activationId, /^[0-9a-f]{32}$/)
const tooLarge = ow.actions.invoke({ name: 'page', params: { username: 'x'.repeat(1 << 20) } })
assert.equal((await failure(tooLarge)).statusCode, 413)

// Their activations.
const activation = await until(() => ow.activations.get(activationId))
assert.equal(activation.name, 'page')
assert.equal(activation.duration, activation.end - activation.start - annotation(activation, 'waitTime'))
assert.equal((await ow.activations.result(activationId)).result.items, 4)
assert.ok(Array.isArray((await ow.activations.logs(activationId)).logs))
assert.match((await ow.activations.logs(failed.error.activationId)).logs.join('\n'), /ValueError/)
const listed = await ow.activations.list({ name: 'page' })
assert.deepEqual(listed.map(one => one.statusCode), [0, 2, 0])
assert.ok(!('logs' in listed[0]))
const [full] = await ow.activations.list({ limit: 1, docs: true, since: activation.start })
assert.deepEqual(full, activation)
assert.deepEqual(await ow.activations.list({ upto: whole.start - 1 }), [])
assert.deepEqual(await ow.activations.list({ count: true }), { activations: 4 })
assert.equal((await failure(ow.activations.get('0'.repeat(32)))).statusCode, 404)

// Code, if there is a runtime for it.
const { runtimes } = await (await fetch(`${apihost}/api/v1`)).json()
const code = { name: 'code', action: 'function main({ name }) { return { hello: name } }' }
if (runtimes.nodejs) {
  const { exec, version } = await ow.actions.create(code)
  assert.deepEqual([exec.kind, version], ['nodejs:20', '0.0.1'])
  assert.equal((await ow.actions.get('code')).exec.code, code.action)
  const greeting = await until(() => ow.actions.invoke({ name: 'code', blocking: true, params: { name: 'you' } }))
  assert.deepEqual(greeting.response.result, { hello: 'you' })
  await ow.actions.delete('code')
} else {
  assert.match((await failure(ow.actions.create(code))).message, /runtimes\/build.sh node/)
}

assert.equal((await ow.actions.delete('page')).name, 'page')
assert.equal((await failure(ow.actions.invoke('page'))).statusCode, 404)
const stranger = openwhisk({ apihost, api_key: 'nobody:0123456789abcdef' })
assert.equal((await failure(stranger.actions.list())).statusCode, 401)
console.log('all right')

function annotation (activation, key) {
  return activation.annotations.find(pair => pair.key === key).value
}
