// Google's Java client: see package clients.
import static com.google.cloud.bigtable.admin.v2.models.GCRules.GCRULES;

import com.google.cloud.bigtable.admin.v2.BigtableTableAdminClient;
import com.google.cloud.bigtable.admin.v2.BigtableTableAdminSettings;
import com.google.cloud.bigtable.admin.v2.models.CreateTableRequest;
import com.google.cloud.bigtable.data.v2.BigtableDataClient;
import com.google.cloud.bigtable.data.v2.BigtableDataSettings;
import com.google.cloud.bigtable.data.v2.models.BulkMutation;
import com.google.cloud.bigtable.data.v2.models.Query;
import com.google.cloud.bigtable.data.v2.models.Row;
import com.google.cloud.bigtable.data.v2.models.RowMutation;
import com.google.cloud.bigtable.data.v2.models.RowMutationEntry;
import com.google.cloud.bigtable.data.v2.models.TableId;
import com.google.protobuf.ByteString;

public class Work {
  private static final int BATCH = 20;

  private static String key(int i) {
    return String.format("%d-%07d", i % 10, i);
  }

  private static void check(Row row) {
    if (row == null || !row.getCells("f", "q").get(0).getValue().equals(row.getKey())) {
      throw new IllegalStateException("row " + row);
    }
  }

  public static void main(String[] args) throws Exception {
    TableId table = TableId.of(args[0]);
    try (BigtableTableAdminClient admin = BigtableTableAdminClient.create(
        BigtableTableAdminSettings.newBuilder().setProjectId("p").setInstanceId("i").build())) {
      CreateTableRequest create = CreateTableRequest.of(args[0]).addFamily("f", GCRULES.maxVersions(1));
      for (String split : new String[] {"2", "4", "6", "8"}) {
        create.addSplit(ByteString.copyFromUtf8(split));
      }
      admin.createTable(create);
    }
    try (BigtableDataClient client = BigtableDataClient.create(
        BigtableDataSettings.newBuilder().setProjectId("p").setInstanceId("i").build())) {
      int rows = 0;
      long end = System.nanoTime() + Long.parseLong(args[1]) * 1_000_000_000L;
      while (System.nanoTime() < end) {
        client.mutateRow(RowMutation.create(table, key(rows)).setCell("f", "q", 1000, key(rows)));
        if (++rows == 1) {
          System.out.println("begun");
        }
        BulkMutation bulk = BulkMutation.create(table);
        for (int i = rows; i < rows + BATCH; i++) {
          bulk.add(RowMutationEntry.create(key(i)).setCell("f", "q", 1000, key(i)));
        }
        client.bulkMutateRows(bulk);
        rows += BATCH;
        check(client.readRow(table, key(rows / 2)));
      }
      int seen = 0;
      for (Row row : client.readRows(Query.create(table))) {
        check(row);
        seen++;
      }
      if (seen != rows) {
        throw new IllegalStateException(seen + " rows, want " + rows);
      }
      System.out.println("rows " + rows);
    }
  }
}
