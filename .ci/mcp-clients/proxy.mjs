// Passes requests on to the server and adds the token, which the conformance suite cannot send.
import http from 'node:http';

const [url, token] = process.argv.slice(2);
const target = new URL(url);
const server = http.createServer((request, response) => {
  const own = `127.0.0.1:${server.address().port}`;
  const headers = { ...request.headers, authorization: `Bearer ${token}` };
  // The proxy stands for the server: its own address means that of the server.
  for (const name of ['host', 'origin']) headers[name] = headers[name]?.replace(own, target.host);
  if (headers.origin === undefined) delete headers.origin;
  const options = { host: target.hostname, port: target.port, path: request.url, method: request.method, headers };
  const onward = http.request(options, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
  });
  onward.on('error', () => response.destroy());
  response.on('close', () => onward.destroy());
  request.pipe(onward);
});
server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}${target.pathname}`));
