// Uses a table whose rows are on several nodes, by the complete client of docs/rpc.md. See cluster_test.py.
import assert from "node:assert/strict";
import { encode } from "@msgpack/msgpack";
import { Stele } from "./stele.mjs";

const text = (bytes) => new TextDecoder().decode(bytes);
const table = process.env.TABLE;
const db = new Stele();
const rows = Array.from({ length: 200 }, (_, i) => "row" + String(i).padStart(3, "0"));
await Promise.all(rows.map((row, i) => db.call("mutate", table, row, [["set", "f", "q", 1000 + i, String(i)]])));
let seen = [];
for await (const [key, cells] of db.scan(table, { batch_rows: 7 })) {
  const i = seen.length;
  assert.deepEqual(cells.map(([f, q, t, v]) => [f, text(q), t, text(v)]), [["f", "q", 1000 + i, String(i)]]);
  seen.push(text(key));
}
assert.deepEqual(seen, rows);
seen = [];
for await (const [key, cells] of db.scan(table, { start: "row050", limit: 101, batch_rows: 7 })) {
  assert.deepEqual(await db.call("read", table, key), [key, cells]); // perhaps of another node, between two batches
  seen.push(text(key));
}
assert.deepEqual(seen, rows.slice(50, 151));

// Times of now have more than 32 bits. With this option the package writes such numbers as floats.
const now = Date.now() * 1000;
assert.equal(encode(now, { useBigInt64: true })[0], 0xcb);
const { addr } = await db.callAt("read", table, rows[0]);
const { socket, waiting } = db.nodes.get(addr);
await new Promise((resolve, reject) => {
  waiting.set(1e9, { resolve, reject });
  socket.write(encode([0, 1e9, "mutate", [table, rows[0], [["set", "f", "now", now, "v"]]]], { useBigInt64: true }));
});
const [, cells] = await db.call("read", table, rows[0], { filter: ["timestamps", now, now + 1] });
assert.equal(cells[0][2], now);

console.log(db.nodes.size, "nodes");
db.close();
