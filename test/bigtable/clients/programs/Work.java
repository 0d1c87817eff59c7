// Google's Java client: see package clients.
import static com.google.cloud.bigtable.admin.v2.models.GCRules.GCRULES;

import com.google.api.gax.rpc.ServerStream;
import com.google.api.gax.rpc.UnavailableException;
import com.google.cloud.bigtable.admin.v2.BigtableTableAdminClient;
import com.google.cloud.bigtable.admin.v2.BigtableTableAdminSettings;
import com.google.cloud.bigtable.admin.v2.models.CreateTableRequest;
import com.google.cloud.bigtable.data.v2.BigtableDataClient;
import com.google.cloud.bigtable.data.v2.BigtableDataSettings;
import com.google.cloud.bigtable.data.v2.models.BulkMutation;
import com.google.cloud.bigtable.data.v2.models.ChangeStreamContinuationToken;
import com.google.cloud.bigtable.data.v2.models.ChangeStreamMutation;
import com.google.cloud.bigtable.data.v2.models.ChangeStreamRecord;
import com.google.cloud.bigtable.data.v2.models.CloseStream;
import com.google.cloud.bigtable.data.v2.models.Heartbeat;
import com.google.cloud.bigtable.data.v2.models.Query;
import com.google.cloud.bigtable.data.v2.models.Range.ByteStringRange;
import com.google.cloud.bigtable.data.v2.models.ReadChangeStreamQuery;
import com.google.cloud.bigtable.data.v2.models.Row;
import com.google.cloud.bigtable.data.v2.models.RowMutation;
import com.google.cloud.bigtable.data.v2.models.RowMutationEntry;
import com.google.cloud.bigtable.data.v2.models.TableId;
import com.google.protobuf.ByteString;
import java.time.Instant;
import java.util.Collections;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.threeten.bp.Duration;

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

  /** The rows of which a change was read, and the first error. */
  private static final Set<ByteString> changed = ConcurrentHashMap.newKeySet();
  private static volatile Exception failure;

  /** To be cancelled: otherwise the client does not close. */
  private static final Set<ServerStream<ChangeStreamRecord>> streams = ConcurrentHashMap.newKeySet();

  /**
   * Reads a partition of the change stream, and those that take its place. It continues at the last token after an error: the client gives up while
   * its only node is down.
   */
  private static void follow(BigtableDataClient client, String table, ByteStringRange partition, ReadChangeStreamQuery query) {
    try {
      ServerStream<ChangeStreamRecord> stream = client.readChangeStream(query);
      streams.add(stream);
      for (ChangeStreamRecord record : stream) {
        if (record instanceof ChangeStreamMutation) {
          ChangeStreamMutation change = (ChangeStreamMutation) record;
          changed.add(change.getRowKey());
          query = resume(table, ChangeStreamContinuationToken.create(partition, change.getToken()));
        } else if (record instanceof Heartbeat) {
          query = resume(table, ((Heartbeat) record).getChangeStreamContinuationToken());
        } else {
          for (ChangeStreamContinuationToken token : ((CloseStream) record).getChangeStreamContinuationTokens()) {
            start(client, table, token.getPartition(), resume(table, token));
          }
        }
      }
    } catch (UnavailableException e) {
      start(client, table, partition, query);
    } catch (Exception e) {
      failure = e;
    }
  }

  private static ReadChangeStreamQuery resume(String table, ChangeStreamContinuationToken token) {
    return ReadChangeStreamQuery.create(table).streamPartition(token.getPartition()).continuationTokens(Collections.singletonList(token));
  }

  private static void start(BigtableDataClient client, String table, ByteStringRange partition, ReadChangeStreamQuery query) {
    Thread reader = new Thread(() -> follow(client, table, partition, query));
    reader.setDaemon(true);
    reader.start();
  }

  public static void main(String[] args) throws Exception {
    TableId table = TableId.of(args[0]);
    try (BigtableTableAdminClient admin = BigtableTableAdminClient.create(
        BigtableTableAdminSettings.newBuilder().setProjectId("p").setInstanceId("i").build())) {
      CreateTableRequest create = CreateTableRequest.of(args[0]).addFamily("f", GCRULES.maxVersions(1))
          .addChangeStreamRetention(Duration.ofDays(1));
      for (String split : new String[] {"2", "4", "6", "8"}) {
        create.addSplit(ByteString.copyFromUtf8(split));
      }
      admin.createTable(create);
    }
    BigtableDataSettings settings = BigtableDataSettings.newBuilder().setProjectId("p").setInstanceId("i").build();
    try (BigtableDataClient client = BigtableDataClient.create(settings); BigtableDataClient reader = BigtableDataClient.create(settings)) {
      for (ByteStringRange partition : reader.generateInitialChangeStreamPartitions(args[0])) {
        start(reader, args[0], partition, ReadChangeStreamQuery.create(args[0]).streamPartition(partition).startTime(Instant.now()));
      }
      try {
        work(client, table, args[1]);
      } finally {
        for (ServerStream<ChangeStreamRecord> stream : streams) {
          stream.cancel();
        }
      }
    }
  }

  private static void work(BigtableDataClient client, TableId table, String seconds) throws Exception {
    int rows = 0;
    long end = System.nanoTime() + Long.parseLong(seconds) * 1_000_000_000L;
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
    for (int i = 0; i < 300 && changed.size() < rows && failure == null; i++) {
      Thread.sleep(100);
    }
    if (failure != null || changed.size() != rows) {
      throw new IllegalStateException(changed.size() + " rows in the change stream, want " + rows, failure);
    }
    System.out.println("rows " + rows);
  }
}
