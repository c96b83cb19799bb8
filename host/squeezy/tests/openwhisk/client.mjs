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

// The activation of a blocking call. On a slow machine a VM may boot for longer than such a call waits.
async function called (name, params = {}, client = ow) {
  const answer = await client.actions.invoke({ name, blocking: true, params })
  return answer.response ? answer : until(() => client.activations.get(answer.activationId), 180000)
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
const whole = await called('page')
assert.equal(whole.response.result.items, 3)
assert.equal(whole.response.success, true)
assert.equal((await called('/_/html', { items: 1 })).response.result.items, 1)
const result = await ow.actions.invoke({ name: 'page', blocking: true, result: true, params: { items: 1 } })
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
assert.deepEqual(listed.map(one => one.statusCode), [0, 2, 0, 0])
assert.ok(!('logs' in listed[0]))
const [full] = await ow.activations.list({ limit: 1, docs: true, since: activation.start })
assert.deepEqual(full, activation)
assert.deepEqual(await ow.activations.list({ upto: whole.start - 1 }), [])
assert.deepEqual(await ow.activations.list({ count: true }), { activations: 5 })
assert.equal((await failure(ow.activations.get('0'.repeat(32)))).statusCode, 404)

// Web actions, for clients without the key.
const web = (path, options) => fetch(`${apihost}/api/v1/web/guest/default/${path}`, options)
assert.equal((await web('page.html')).status, 404)
await ow.actions.update({ name: 'page', params: { username: 'default' }, annotations: { 'web-export': true } })
const page = await web('page.html?other=2')
assert.equal(page.status, 200)
assert.equal(page.headers.get('content-type'), 'text/html; charset=utf-8')
assert.equal(page.headers.get('access-control-allow-origin'), '*')
assert.match(page.headers.get('content-security-policy'), /^sandbox /)
assert.match(await page.text(), /<html[^]*default/)
const headers = { 'Content-Type': 'application/json' }
const part = await web('page.json/a/path', { method: 'POST', headers, body: '{"items":3}' })
assert.equal((await part.json()).items, 3)
const head = await web('page.html', { method: 'HEAD' })
assert.deepEqual([head.status, await head.text()], [200, ''])
const seen = await ow.activations.get(part.headers.get('x-openwhisk-activation-id'))
assert.equal(seen.name, 'page')
assert.equal((await web('page.json?username=me')).status, 400)
const wrong = await web('page.json?items=many')
assert.equal(wrong.status, 400)
assert.doesNotMatch(await wrong.text(), /ValueError/)

// Sequences. The second component gets the first one's result, over its own parameters.
const sequence = (...names) => ({ exec: { kind: 'sequence', components: names.map(name => `/_/${name}`) } })
await ow.actions.create({ name: 'twice', action: sequence('html', 'page'), params: { items: 1 } })
const both = await called('twice', { username: 'me' })
assert.equal(both.response.success, true)
assert.match(both.response.result.html, /<html/)
assert.equal(annotation(both, 'kind'), 'sequence')
const parts = await Promise.all(both.logs.map(id => ow.activations.get(id)))
assert.deepEqual(parts.map(part => [part.name, part.cause]), [['html', both.activationId], ['page', both.activationId]])
assert.deepEqual(parts[1].response.result, both.response.result)
// Each is rounded down.
assert.ok(both.duration - parts[0].duration - parts[1].duration <= 1)
assert.ok(both.duration >= parts[0].duration + parts[1].duration)
const stopped = await failure(ow.actions.invoke({ name: 'twice', blocking: true, params: { items: 'many' } }))
assert.equal(stopped.error.response.status, 'action developer error')
assert.equal(stopped.error.logs.length, 1)
assert.equal((await failure(ow.actions.update({ name: 'twice', action: sequence('twice') }))).statusCode, 400)
await ow.actions.delete('twice')

// Packages and bindings. What is nearer to the call goes before what is farther.
const pairs = (params) => Object.entries(params).map(([key, value]) => ({ key, value }))
await ow.packages.create({ name: 'tools', package: { parameters: pairs({ username: 'tools', items: 1 }) } })
assert.equal((await failure(ow.packages.create({ name: 'tools' }))).statusCode, 409)
const bound = { binding: { namespace: '_', name: 'tools' }, parameters: pairs({ items: 2 }) }
await ow.packages.create({ name: 'mine', package: bound })
assert.equal((await failure(ow.actions.create({ name: 'none/page', action: { exec: image } }))).statusCode, 404)
await ow.actions.create({ name: 'tools/page', action: { exec: image } })
const listing = await ow.packages.list()
assert.deepEqual(listing.map(one => [one.name, one.binding.name]), [['mine', 'tools'], ['tools', undefined]])
assert.deepEqual((await ow.packages.get('mine')).actions.map(action => action.name), ['page'])
assert.deepEqual((await ow.actions.get('mine/page')).parameters, pairs({ items: 2, username: 'tools' }))
const packaged = (await ow.actions.list()).find(action => action.namespace === 'guest/tools')
assert.equal(packaged.name, 'page')
const inTools = await called('tools/page')
assert.equal(inTools.response.result.items, 1)
assert.deepEqual([inTools.name, annotation(inTools, 'path')], ['page', 'guest/tools/page'])
assert.equal((await called('mine/page')).response.result.items, 2)
assert.equal((await called('/guest/mine/page', { items: 3 })).response.result.items, 3)
assert.equal((await failure(ow.packages.delete('tools'))).statusCode, 409)
await ow.actions.update({ name: 'tools/page', annotations: { 'web-export': true } })
const ofTools = await fetch(`${apihost}/api/v1/web/guest/mine/page.json`)
assert.equal((await ofTools.json()).items, 2)
await ow.actions.delete('tools/page')
await ow.packages.delete('tools')
assert.equal((await failure(ow.actions.invoke('mine/page'))).statusCode, 404)
assert.equal((await ow.packages.delete('mine')).name, 'mine')

// Code, if there is a runtime for it.
const { runtimes } = await (await fetch(`${apihost}/api/v1`)).json()
const code = { name: 'code', action: 'function main({ name }) { return { hello: name } }' }
if (runtimes.nodejs) {
  const { exec, version } = await ow.actions.create(code)
  assert.deepEqual([exec.kind, version], ['nodejs:20', '0.0.1'])
  assert.equal((await ow.actions.get('code')).exec.code, code.action)
  const greeting = await called('code', { name: 'you' })
  assert.deepEqual(greeting.response.result, { hello: 'you' })
  await ow.actions.delete('code')
  const teapot = `function main (args) {
    return { statusCode: 418, headers: { 'X-Own': args.__ow_method, 'Set-Cookie': ['a=1', 'b=2'] }, body: args }
  }`
  await ow.actions.create({ name: 'tea', action: teapot, annotations: { 'web-export': true, 'raw-http': true } })
  const options = { method: 'PATCH', body: 'pot', headers: { Authorization: 'Bearer own', Cookie: 'c=3' } }
  const tea = await until(async () => {
    const tea = await web('tea/a%20b?c=d', options)
    assert.equal(tea.status, 418)
    return tea
  }, 180000)
  assert.deepEqual([tea.headers.get('x-own'), tea.headers.getSetCookie()], ['patch', ['a=1', 'b=2'].map(
    cookie => `${cookie}; Path=/api/v1/web/guest/default/tea`
  )])
  const told = await tea.json()
  assert.deepEqual([told.__ow_path, told.__ow_query, told.__ow_body], ['/a%20b', 'c=d', 'pot'])
  assert.deepEqual([told.__ow_headers.authorization, told.__ow_headers.cookie], ['Bearer own', 'c=3'])
  const basic = 'Basic ' + Buffer.from(key).toString('base64')
  const known = await (await web('tea', { headers: { Authorization: basic } })).json()
  assert.deepEqual([known.__ow_user, known.__ow_headers.authorization], ['guest', undefined])
  await ow.actions.delete('tea')
} else {
  assert.match((await failure(ow.actions.create(code))).message, /runtimes\/build.sh node/)
}

// Another namespace, whose clients have and see their own things only.
async function operate (method, path) {
  const headers = { Authorization: 'Basic ' + Buffer.from(key).toString('base64') }
  const answer = await fetch(`${apihost}/api/v1/namespaces/${path}`, { method, headers })
  assert.ok(answer.ok, await answer.clone().text())
  return answer.json()
}
await operate('PUT', 'acme')
const acme = openwhisk({ apihost, api_key: (await operate('PUT', 'acme/keys/first')).key })
assert.deepEqual(await acme.namespaces.list(), ['acme'])
assert.deepEqual(await acme.actions.list(), [])
await acme.actions.create({ name: 'page', action: { exec: image }, params: { username: 'acme' } })
const theirs = await called('page', { items: 5 }, acme)
assert.deepEqual([theirs.namespace, theirs.response.result.items], ['acme', 5])
assert.deepEqual((await acme.activations.list()).map(one => one.activationId), [theirs.activationId])
assert.equal((await failure(acme.activations.get(activationId))).statusCode, 404)
assert.equal((await failure(acme.actions.get('/guest/html'))).statusCode, 403)
assert.equal((await failure(acme.actions.invoke('/guest/html'))).statusCode, 403)
assert.equal((await ow.actions.get('/acme/page')).namespace, 'acme')
assert.equal((await failure(ow.activations.get(theirs.activationId))).statusCode, 404)
await operate('DELETE', 'acme?force=true')
assert.equal((await failure(acme.actions.list())).statusCode, 401)
assert.deepEqual(await ow.namespaces.list(), ['guest'])

assert.equal((await ow.actions.delete('page')).name, 'page')
assert.equal((await failure(ow.actions.invoke('page'))).statusCode, 404)
const stranger = openwhisk({ apihost, api_key: 'nobody:0123456789abcdef' })
assert.equal((await failure(stranger.actions.list())).statusCode, 401)
console.log('all right')

function annotation (activation, key) {
  return activation.annotations.find(pair => pair.key === key).value
}
