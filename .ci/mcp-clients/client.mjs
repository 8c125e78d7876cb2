// Drives the server with the official TypeScript client, which checks every result by its output schema.
import assert from 'node:assert';
import fs from 'node:fs';
import path from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const [binary, project] = process.argv.slice(2);
const file = path.join(project, 'typescript.txt');
fs.writeFileSync(file, 'good\n');
const client = new Client({ name: 'typescript', version: '1' }, { capabilities: { elicitation: {} } });
let asked = 0;
client.setRequestHandler(ElicitRequestSchema, async () => {
  asked += 1;
  return { action: 'accept', content: {} };
});
await client.connect(new StdioClientTransport({
  command: binary,
  args: ['mcp', '--workspace', project],
  env: { ...process.env },
}));
assert.equal((await client.listTools()).tools.length, 15);
const call = async (name, args = {}) => {
  const result = await client.callTool({ name, arguments: args });
  assert(!result.isError, JSON.stringify(result));
  return result.structuredContent;
};
await call('checkpoint', { label: 'typescript' });
fs.writeFileSync(file, 'bad\n');
const { token } = await call('preview', { to: 'typescript' });
const done = await call('rollback', { token });
assert.deepEqual(done.read_again, ['typescript.txt']);
assert.equal(fs.readFileSync(file, 'utf8'), 'good\n');
assert.equal(asked, 1);
const failed = await client.callTool({ name: 'rollback', arguments: { token } });
assert(failed.isError && failed.structuredContent.error.code === 'stale_preview');
await call('undo');
assert.equal(fs.readFileSync(file, 'utf8'), 'bad\n');
assert.deepEqual((await call('attempts')).attempts, []);
await client.close();
console.log('passed');
