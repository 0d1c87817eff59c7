// Google's Node client: see package clients.
const assert = require('node:assert');
const {Bigtable} = require('@google-cloud/bigtable');

const BATCH = 20;
const key = i => `${i % 10}-${String(i).padStart(7, '0')}`;
const entry = i => ({key: key(i), data: {f: {q: {value: key(i), timestamp: 1000}}}});

async function main(name, seconds) {
  const bigtable = new Bigtable({projectId: 'p'});
  const table = bigtable.instance('i').table(name);
  await table.create({families: [{name: 'f', rule: {versions: 1}}], splits: ['2', '4', '6', '8'].map(row => Buffer.from(row))});
  let rows = 0;
  const end = Date.now() + 1000 * seconds;
  while (Date.now() < end) {
    await table.insert([entry(rows)]);
    if (++rows === 1) {
      console.log('begun');
    }
    await table.insert(Array.from({length: BATCH}, (_, i) => entry(rows + i)));
    rows += BATCH;
    const [got] = await table.row(key(Math.floor(rows / 2))).get();
    assert.strictEqual(got.data.f.q[0].value, got.id);
  }
  const [all] = await table.getRows();
  for (const got of all) {
    assert.strictEqual(got.data.f.q[0].value, got.id);
  }
  assert.strictEqual(all.length, rows);
  console.log('rows', rows);
  await bigtable.close();
}

main(process.argv[2], Number(process.argv[3])).catch(err => {
  console.error(err);
  process.exit(1);
});
