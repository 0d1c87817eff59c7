// A program of Apache Beam: see package clients.
import static com.google.cloud.bigtable.admin.v2.models.GCRules.GCRULES;

import com.google.bigtable.v2.Mutation;
import com.google.bigtable.v2.Row;
import com.google.cloud.bigtable.admin.v2.BigtableTableAdminClient;
import com.google.cloud.bigtable.admin.v2.BigtableTableAdminSettings;
import com.google.cloud.bigtable.admin.v2.models.CreateTableRequest;
import com.google.cloud.bigtable.data.v2.models.ChangeStreamMutation;
import com.google.protobuf.ByteString;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.beam.runners.direct.DirectOptions;
import org.apache.beam.sdk.Pipeline;
import org.apache.beam.sdk.PipelineResult;
import org.apache.beam.sdk.extensions.gcp.auth.NoopCredentialFactory;
import org.apache.beam.sdk.extensions.gcp.options.GcpOptions;
import org.apache.beam.sdk.io.gcp.bigtable.BigtableIO;
import org.apache.beam.sdk.io.gcp.bigtable.Changes;
import org.apache.beam.sdk.options.PipelineOptionsFactory;
import org.apache.beam.sdk.transforms.Create;
import org.apache.beam.sdk.transforms.DoFn;
import org.apache.beam.sdk.transforms.ParDo;
import org.apache.beam.sdk.values.KV;
import org.joda.time.Instant;
import org.threeten.bp.Duration;

public class Work {
  private static final int BATCH = 500;

  /** The address of a cluster without certificates. One with certificates is that of the domain in the environment. */
  private static final String HOST = System.getenv("BIGTABLE_EMULATOR_HOST");

  /** The keys that pipelines have found. They run in this process. */
  private static final Set<ByteString> changed = ConcurrentHashMap.newKeySet(), read = ConcurrentHashMap.newKeySet();
  private static final AtomicInteger reads = new AtomicInteger();
  private static int pipelines;
  private static volatile int restarts;

  private static String key(int i) {
    return String.format("%d-%07d", i % 10, i);
  }

  static class ToMutation extends DoFn<Integer, KV<ByteString, Iterable<Mutation>>> {
    @ProcessElement
    public void process(@Element Integer i, OutputReceiver<KV<ByteString, Iterable<Mutation>>> out) {
      ByteString key = ByteString.copyFromUtf8(key(i));
      Mutation.SetCell cell = Mutation.SetCell.newBuilder().setFamilyName("f").setColumnQualifier(ByteString.copyFromUtf8("q"))
          .setTimestampMicros(1000).setValue(key).build();
      out.output(KV.of(key, Collections.singletonList(Mutation.newBuilder().setSetCell(cell).build())));
    }
  }

  static class Check extends DoFn<Row, Void> {
    @ProcessElement
    public void process(@Element Row row) {
      if (!row.getFamilies(0).getColumns(0).getCells(0).getValue().equals(row.getKey())) {
        throw new IllegalStateException("row " + row);
      }
      read.add(row.getKey());
      reads.incrementAndGet();
    }
  }

  static class Follow extends DoFn<KV<ByteString, ChangeStreamMutation>, Void> {
    @ProcessElement
    public void process(@Element KV<ByteString, ChangeStreamMutation> change) {
      changed.add(change.getKey());
    }
  }

  private static Pipeline pipeline() {
    DirectOptions options = PipelineOptionsFactory.as(DirectOptions.class);
    options.setBlockOnRun(false);
    options.as(GcpOptions.class).setCredentialFactoryClass(HOST == null ? Token.class : NoopCredentialFactory.class);
    return Pipeline.create(options);
  }

  private static void finish(Pipeline p) {
    pipelines++;
    PipelineResult.State state = p.run().waitUntilFinish();
    if (state != PipelineResult.State.DONE) {
      throw new IllegalStateException("a pipeline is " + state);
    }
  }

  public static void main(String[] args) {
    try {
      work(args);
      System.exit(0); // with the pipeline of the change stream
    } catch (Throwable t) {
      t.printStackTrace();
      System.exit(1);
    }
  }

  private static void work(String[] args) throws Exception {
    String table = args[0];
    BigtableTableAdminSettings.Builder settings = BigtableTableAdminSettings.newBuilder().setProjectId("p").setInstanceId("i");
    if (HOST == null) {
      settings.setCredentialsProvider(() -> new Token().getCredential());
    }
    try (BigtableTableAdminClient admin = BigtableTableAdminClient.create(settings.build())) {
      CreateTableRequest create = CreateTableRequest.of(table).addFamily("f", GCRULES.maxVersions(1)).addChangeStreamRetention(Duration.ofDays(1));
      for (String split : new String[] {"2", "4", "6", "8"}) {
        create.addSplit(ByteString.copyFromUtf8(split));
      }
      admin.createTable(create);
    }
    Instant start = Instant.now();
    Thread follower = new Thread(() -> follow(table, start));
    follower.setDaemon(true); // a stream of changes has no end
    follower.start();

    int rows = 0;
    long end = 0;
    while (rows == 0 || System.nanoTime() < end) {
      List<Integer> next = new ArrayList<>();
      for (int i = rows; i < rows + BATCH; i++) {
        next.add(i);
      }
      Pipeline write = pipeline();
      BigtableIO.Write io = BigtableIO.write().withProjectId("p").withInstanceId("i").withTableId(table);
      write.apply(Create.of(next)).apply(ParDo.of(new ToMutation()))
          .apply(HOST == null ? io : io.withEmulator(HOST));
      finish(write);
      rows += BATCH;
      if (rows == BATCH) {
        end = System.nanoTime() + Long.parseLong(args[1]) * 1_000_000_000L;
        System.out.println("begun");
      }
      readAll(table, rows);
    }
    for (int i = 0; i < 600 && changed.size() < rows; i++) {
      Thread.sleep(100);
    }
    if (changed.size() != rows) {
      throw new IllegalStateException(changed.size() + " rows in the change stream, want " + rows);
    }
    System.out.println("rows " + rows + ", " + pipelines + " pipelines; all in the change stream, whose pipeline was started again " + restarts + " times");
  }

  /** Reads the change stream. DirectRunner repeats nothing: its pipeline fails while no node can be reached, and a new one reads all changes again. */
  private static void follow(String table, Instant start) {
    for (;; restarts++) {
      try {
        Pipeline p = pipeline();
        p.apply(Changes.connect(BigtableIO.readChangeStream().withProjectId("p").withInstanceId("i").withTableId(table).withAppProfileId("default")
            .withStartTime(start).withChangeStreamName(table + restarts), HOST == null ? () -> new Token().getCredential() : null))
            .apply(ParDo.of(new Follow()));
        p.run().waitUntilFinish();
        throw new IllegalStateException("the change stream has ended");
      } catch (RuntimeException e) {
        e.printStackTrace();
      }
    }
  }

  private static void readAll(String table, int rows) {
    read.clear();
    reads.set(0);
    Pipeline all = pipeline();
    BigtableIO.Read io = BigtableIO.read().withProjectId("p").withInstanceId("i").withTableId(table);
    all.apply(HOST == null ? io : io.withEmulator(HOST)).apply(ParDo.of(new Check()));
    finish(all);
    if (reads.get() != rows || read.size() != rows) {
      throw new IllegalStateException(reads + " rows were read, " + read.size() + " of them different, want " + rows);
    }
  }
}
