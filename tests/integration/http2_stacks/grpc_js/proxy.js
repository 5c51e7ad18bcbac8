// A proxy with grpc-js on both sides, which passes messages on as bytes.
//
// SIGHUP replaces the server: a new one takes new connections, and the old one ends its calls
// within five seconds.  Arguments: address to listen on, address of the backend, file with a key
// and a certificate, and the methods.
import { readFileSync } from "node:fs";
import grpc from "@grpc/grpc-js";

const [address, backend, file, ...methods] = process.argv.slice(2);
const pem = readFileSync(file);
const tls = grpc.ServerCredentials.createSsl(null, [{ private_key: pem, cert_chain: pem }]);
const sizes = { "grpc.max_receive_message_length": -1, "grpc.max_send_message_length": -1 };
const patienceMs = 5_000;
// Each connection is replaced now and then, as services do.
const ages = {
  "grpc.max_connection_age_ms": 10_000,
  "grpc.max_connection_age_grace_ms": patienceMs,
};
const client = new grpc.Client(backend, grpc.credentials.createInsecure(), sizes);
const same = (bytes) => bytes;

// A unary call differs from a streaming one in the number of messages only.
function pass(path) {
  return (caller) => {
    const metadata = caller.metadata.clone();
    metadata.remove("user-agent");
    const call = client.makeServerStreamRequest(path, same, same, caller.request, metadata);
    call.on("data", (message) => {
      if (!caller.write(message)) {
        call.pause();
        caller.once("drain", () => call.resume());
      }
    });
    call.on("error", () => {}); // the status has it
    call.on("status", ({ code, details, metadata: trailers }) => {
      if (code === grpc.status.OK) caller.end(trailers);
      else caller.emit("error", { code, details, metadata: trailers });
    });
    caller.on("cancelled", () => call.cancel());
  };
}

let servers = 0;

function serve() {
  const server = new grpc.Server({ ...sizes, ...ages });
  for (const path of methods) server.register(path, pass(path), same, same, "serverStream");
  const bind = () =>
    // A server before it leaves the address in a moment.
    server.bindAsync(address, tls, (error) => {
      if (error) setTimeout(bind, 10);
      else console.log(`server ${++servers}`);
    });
  bind();
  return server;
}

let server = serve();
process.on("SIGHUP", () => {
  const old = server;
  setTimeout(() => old.forceShutdown(), patienceMs);
  old.tryShutdown(() => {});
  server = serve();
});
