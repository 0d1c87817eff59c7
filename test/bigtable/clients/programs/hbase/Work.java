// A program of HBase: see package clients. Nothing in it is of Bigtable: hbase-site.xml selects the connection.
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.StreamSupport;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.HRegionLocation;
import org.apache.hadoop.hbase.TableExistsException;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.BufferedMutator;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.RowMutations;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.filter.BinaryComparator;
import org.apache.hadoop.hbase.filter.ColumnCountGetFilter;
import org.apache.hadoop.hbase.filter.ColumnPaginationFilter;
import org.apache.hadoop.hbase.filter.ColumnPrefixFilter;
import org.apache.hadoop.hbase.filter.ColumnRangeFilter;
import org.apache.hadoop.hbase.filter.FamilyFilter;
import org.apache.hadoop.hbase.filter.Filter;
import org.apache.hadoop.hbase.filter.FilterList;
import org.apache.hadoop.hbase.filter.FirstKeyOnlyFilter;
import org.apache.hadoop.hbase.filter.FuzzyRowFilter;
import org.apache.hadoop.hbase.filter.KeyOnlyFilter;
import org.apache.hadoop.hbase.filter.MultiRowRangeFilter;
import org.apache.hadoop.hbase.filter.MultipleColumnPrefixFilter;
import org.apache.hadoop.hbase.filter.PageFilter;
import org.apache.hadoop.hbase.filter.PrefixFilter;
import org.apache.hadoop.hbase.filter.QualifierFilter;
import org.apache.hadoop.hbase.filter.RegexStringComparator;
import org.apache.hadoop.hbase.filter.RowFilter;
import org.apache.hadoop.hbase.filter.SingleColumnValueFilter;
import org.apache.hadoop.hbase.filter.TimestampsFilter;
import org.apache.hadoop.hbase.filter.ValueFilter;
import org.apache.hadoop.hbase.filter.WhileMatchFilter;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.util.Pair;

public class Work {
  private static final int BATCH = 20;
  private static final byte[] F = b("f"), G = b("g"), Q = b("q");

  private static byte[] b(String s) {
    return Bytes.toBytes(s);
  }

  private static String s(byte[] b) {
    return Bytes.toString(b);
  }

  private static void check(String what, Object want, Object got) {
    if (!want.equals(got)) {
      throw new IllegalStateException(what + ": " + got + ", want " + want);
    }
  }

  /** The cells of a row as family:qualifier=value. */
  private static String text(Result row) {
    StringBuilder text = new StringBuilder(s(row.getRow()));
    for (Cell cell : row.rawCells()) {
      text.append(' ').append(s(CellUtil.cloneFamily(cell))).append(':').append(s(CellUtil.cloneQualifier(cell))).append('=')
          .append(s(CellUtil.cloneValue(cell)));
    }
    return text.toString();
  }

  /** The rows of a scan. */
  private static String rows(Table table, Scan scan) throws IOException {
    try (ResultScanner scanner = table.getScanner(scan)) {
      return StreamSupport.stream(scanner.spliterator(), false).map(Work::text).collect(Collectors.joining(", "));
    }
  }

  private static void filter(Table table, Filter filter, String want) throws IOException {
    check(filter.toString(), want, rows(table, new Scan().setFilter(filter)));
  }

  private static ColumnFamilyDescriptor family(String name, int versions) {
    return ColumnFamilyDescriptorBuilder.newBuilder(b(name)).setMaxVersions(versions).build();
  }

  private static Put put(String row, String qualifier, String value) {
    return new Put(b(row)).addColumn(F, b(qualifier), b(value));
  }

  /** Creates, changes, truncates and deletes a table. */
  private static void tables(Connection connection, Admin admin) throws IOException {
    TableName name = TableName.valueOf("admin");
    TableDescriptor plan = TableDescriptorBuilder.newBuilder(name).setColumnFamily(family("f", 3)).build();
    admin.createTable(plan, new byte[][] {b("h"), b("p")});
    try {
      admin.createTable(plan);
      throw new IllegalStateException("a table was created twice");
    } catch (TableExistsException expected) {
      check("exists", true, admin.tableExists(name));
    }
    check("regions", Arrays.asList("", "h", "p"), connection.getRegionLocator(name).getAllRegionLocations().stream()
        .map((HRegionLocation r) -> s(r.getRegion().getStartKey())).collect(Collectors.toList()));
    check("versions", 3, admin.getDescriptor(name).getColumnFamily(F).getMaxVersions());
    admin.addColumnFamily(name, ColumnFamilyDescriptorBuilder.newBuilder(G).setMaxVersions(1).setTimeToLive(86400).build());
    check("time to live", 86400, admin.getDescriptor(name).getColumnFamily(G).getTimeToLive());
    admin.modifyColumnFamily(name, family("f", 1));
    check("versions", 1, admin.getDescriptor(name).getColumnFamily(F).getMaxVersions());
    admin.modifyTable(TableDescriptorBuilder.newBuilder(name).setColumnFamily(family("f", 2)).setColumnFamily(family("h", 1)).build());
    check("families", "[f, h]", admin.getDescriptor(name).getColumnFamilyNames().stream().map(Work::s).collect(Collectors.toList()).toString());
    admin.deleteColumnFamily(name, b("h"));
    check("tables", true, Arrays.asList(admin.listTableNames()).contains(name));
    check("descriptors", true, admin.listTableDescriptors().stream().anyMatch(t -> t.getTableName().equals(name)));
    try (Table table = connection.getTable(name)) {
      table.put(Arrays.asList(put("a", "q", "1"), put("x", "q", "2")));
      check("rows", "a f:q=1, x f:q=2", rows(table, new Scan()));
      admin.disableTable(name);
      admin.truncateTable(name, true);
      check("rows after truncation", "", rows(table, new Scan()));
    }
    admin.disableTable(name);
    admin.deleteTable(name);
    check("exists after deletion", false, admin.tableExists(name));
  }

  /** Makes each kind of change once. */
  private static void changes(Table table) throws Exception {
    byte[] row = b("changes");
    table.put(new Put(row).addColumn(F, Q, 1000, b("old")).addColumn(F, Q, 2000, b("new")).addColumn(G, b("r"), 1000, b("g")));
    check("get", "changes f:q=new g:r=g", text(table.get(new Get(row))));
    check("versions", "changes f:q=new f:q=old", text(table.get(new Get(row).addFamily(F).readVersions(2))));
    check("a version", "changes f:q=old", text(table.get(new Get(row).setTimestamp(1000).addColumn(F, Q))));
    check("a time range", "changes f:q=old", text(table.get(new Get(row).setTimeRange(0, 2000).addColumn(F, Q))));
    check("exists", true, table.exists(new Get(row)));
    check("exist", "[true, false]", Arrays.toString(table.exists(Arrays.asList(new Get(row), new Get(b("none"))))));
    check("no row", true, table.get(new Get(b("none"))).isEmpty());

    check("increment", 5L, table.incrementColumnValue(row, F, b("n"), 5));
    Result sums = table.increment(new Increment(row).addColumn(F, b("n"), -2).addColumn(G, b("m"), 7));
    check("increments", "3 7", Bytes.toLong(sums.getValue(F, b("n"))) + " " + Bytes.toLong(sums.getValue(G, b("m"))));
    table.append(new Append(row).addColumn(F, b("s"), b("one")));
    check("append", "onetwo", s(table.append(new Append(row).addColumn(F, b("s"), b("two"))).getValue(F, b("s"))));

    check("checkAndPut", true, table.checkAndMutate(row, F).qualifier(Q).ifEquals(b("new")).thenPut(new Put(row).addColumn(F, Q, 3000, b("newer"))));
    check("checkAndPut, other value", false, table.checkAndMutate(row, F).qualifier(Q).ifEquals(b("new")).thenPut(new Put(row).addColumn(F, Q, 4000, b("no"))));
    check("if absent", true, table.checkAndMutate(row, F).qualifier(b("lock")).ifNotExists().thenPut(new Put(row).addColumn(F, b("lock"), b("me"))));
    check("if absent, again", false, table.checkAndMutate(row, F).qualifier(b("lock")).ifNotExists().thenPut(new Put(row).addColumn(F, b("lock"), b("you"))));
    check("if not equal", true, table.checkAndMutate(row, F).qualifier(b("lock")).ifMatches(CompareOperator.NOT_EQUAL, b("you"))
        .thenDelete(new Delete(row).addColumns(F, b("lock"))));
    RowMutations both = new RowMutations(row);
    both.add(new Put(row).addColumn(G, b("r"), 2000, b("checked")));
    both.add(new Delete(row).addColumns(F, b("s")));
    check("checkAndMutate", true, table.checkAndMutate(row, F).qualifier(Q).ifMatches(CompareOperator.LESS, b("a")).thenMutate(both));
    check("row", "changes f:q=newer g:r=checked", text(table.get(new Get(row).addColumn(F, Q).addColumn(F, b("s")).addColumn(F, b("lock")).addColumn(G, b("r")))));

    RowMutations mutations = new RowMutations(row);
    mutations.add(new Put(row).addColumn(F, b("t"), b("t")));
    mutations.add(new Delete(row).addFamily(G));
    table.mutateRow(mutations);
    check("mutateRow", "changes f:t=t", text(table.get(new Get(row).addColumn(F, b("t")).addFamily(G))));
    table.delete(new Delete(row).addColumn(F, Q, 3000));
    check("a version deleted", "changes f:q=new", text(table.get(new Get(row).addColumn(F, Q))));

    Object[] results = new Object[4];
    table.batch(Arrays.asList(put("batch", "q", "b"), new Get(row).addColumn(F, b("t")), new Increment(row).addColumn(F, b("n"), 1), new Delete(b("none"))), results);
    check("batch", "changes f:t=t", text((Result) results[1]));
    check("increment in a batch", 4L, Bytes.toLong(((Result) results[2]).getValue(F, b("n"))));
    table.delete(new ArrayList<>(Arrays.asList(new Delete(row), new Delete(b("batch")))));
    check("rows deleted", "", rows(table, new Scan()));
  }

  /** Reads the same rows with each filter. */
  private static void filters(Table table) throws IOException {
    List<Put> puts = new ArrayList<>();
    for (String row : new String[] {"a1", "a2", "b1", "b2"}) {
      puts.add(new Put(b(row)).addColumn(F, b("p"), 1000, b(row)).addColumn(F, b("q"), 2000, b(row.substring(1))).addColumn(G, b("r"), 1000, b("g")));
    }
    table.put(puts);
    String a1 = "a1 f:p=a1 f:q=1 g:r=g", a2 = "a2 f:p=a2 f:q=2 g:r=g", b1 = "b1 f:p=b1 f:q=1 g:r=g", b2 = "b2 f:p=b2 f:q=2 g:r=g";
    check("all", String.join(", ", a1, a2, b1, b2), rows(table, new Scan()));
    check("range", String.join(", ", a2, b1), rows(table, new Scan().withStartRow(b("a1"), false).withStopRow(b("b1"), true)));
    check("prefix", String.join(", ", b1, b2), rows(table, new Scan().setRowPrefixFilter(b("b"))));
    check("reversed", String.join(", ", b2, b1, a2, a1), rows(table, new Scan().setReversed(true)));
    check("reversed range", String.join(", ", b1, a2), rows(table, new Scan().setReversed(true).withStartRow(b("b2"), false).withStopRow(b("a1"), false)));
    check("reversed limit", String.join(", ", b2, b1), rows(table, new Scan().setReversed(true).setLimit(2)));
    check("limit", String.join(", ", a1, a2, b1), rows(table, new Scan().setLimit(3)));
    check("column", "a1 f:q=1, a2 f:q=2", rows(table, new Scan().addColumn(F, Q).withStopRow(b("b"))));
    check("time range", "a1 f:q=1, a2 f:q=2, b1 f:q=1, b2 f:q=2", rows(table, new Scan().setTimeRange(1500, 2500)));
    filter(table, new PrefixFilter(b("a")), String.join(", ", a1, a2));
    filter(table, new FuzzyRowFilter(List.of(new Pair<>(b("x1"), new byte[] {1, 0}))), String.join(", ", a1, b1));
    filter(table, new PageFilter(3), String.join(", ", a1, a2, b1));
    filter(table, new RowFilter(CompareOperator.EQUAL, new RegexStringComparator(".1")), String.join(", ", a1, b1));
    filter(table, new FamilyFilter(CompareOperator.EQUAL, new BinaryComparator(G)), "a1 g:r=g, a2 g:r=g, b1 g:r=g, b2 g:r=g");
    filter(table, new QualifierFilter(CompareOperator.EQUAL, new BinaryComparator(Q)), "a1 f:q=1, a2 f:q=2, b1 f:q=1, b2 f:q=2");
    filter(table, new ColumnPrefixFilter(Q), "a1 f:q=1, a2 f:q=2, b1 f:q=1, b2 f:q=2");
    filter(table, new MultipleColumnPrefixFilter(new byte[][] {b("q"), b("r")}), "a1 f:q=1 g:r=g, a2 f:q=2 g:r=g, b1 f:q=1 g:r=g, b2 f:q=2 g:r=g");
    check("range of columns", "a1 f:p=a1, a2 f:p=a2, b1 f:p=b1, b2 f:p=b2", rows(table, new Scan().addFamily(F).setFilter(new ColumnRangeFilter(b("p"), true, b("q"), false))));
    filter(table, new ValueFilter(CompareOperator.EQUAL, new BinaryComparator(b("1"))), "a1 f:q=1, b1 f:q=1");
    filter(table, new ValueFilter(CompareOperator.GREATER_OR_EQUAL, new BinaryComparator(b("b2"))), "a1 g:r=g, a2 g:r=g, b1 g:r=g, b2 f:p=b2 g:r=g");
    filter(table, new ValueFilter(CompareOperator.EQUAL, new RegexStringComparator("[ab]2")), "a2 f:p=a2, b2 f:p=b2");
    filter(table, new SingleColumnValueFilter(F, Q, CompareOperator.EQUAL, b("2")), String.join(", ", a2, b2));
    filter(table, new KeyOnlyFilter(), "a1 f:p= f:q= g:r=, a2 f:p= f:q= g:r=, b1 f:p= f:q= g:r=, b2 f:p= f:q= g:r=");
    filter(table, new FirstKeyOnlyFilter(), "a1 f:p=a1, a2 f:p=a2, b1 f:p=b1, b2 f:p=b2");
    filter(table, new ColumnCountGetFilter(2), "a1 f:p=a1 f:q=1, a2 f:p=a2 f:q=2, b1 f:p=b1 f:q=1, b2 f:p=b2 f:q=2");
    check("page of columns", "a1 f:q=1", text(table.get(new Get(b("a1")).setFilter(new ColumnPaginationFilter(1, 1)))));
    filter(table, new TimestampsFilter(Arrays.asList(2000L)), "a1 f:q=1, a2 f:q=2, b1 f:q=1, b2 f:q=2");
    filter(table, new MultiRowRangeFilter(Arrays.asList(new MultiRowRangeFilter.RowRange("a2", true, "b1", false), new MultiRowRangeFilter.RowRange("b2", true, "b3", false))),
        String.join(", ", a2, b2));
    filter(table, new WhileMatchFilter(new RowFilter(CompareOperator.EQUAL, new RegexStringComparator("a."))), String.join(", ", a1, a2));
    filter(table, new FilterList(FilterList.Operator.MUST_PASS_ALL, new PrefixFilter(b("a")), new ValueFilter(CompareOperator.EQUAL, new BinaryComparator(b("2")))), "a2 f:q=2");
    filter(table, new FilterList(FilterList.Operator.MUST_PASS_ONE, new ColumnPrefixFilter(b("p")), new FamilyFilter(CompareOperator.EQUAL, new BinaryComparator(G))),
        "a1 f:p=a1 g:r=g, a2 f:p=a2 g:r=g, b1 f:p=b1 g:r=g, b2 f:p=b2 g:r=g");
  }

  private static String key(int i) {
    return String.format("%d-%07d", i % 10, i);
  }

  private static Put put(int i) {
    return put(key(i), "q", key(i));
  }

  private static void checkRow(Result row) {
    check("row", row.isEmpty() ? "a row" : s(row.getRow()), row.isEmpty() ? "none" : s(row.getValue(F, Q)));
  }

  public static void main(String[] args) throws Exception {
    TableName name = TableName.valueOf(args[0]);
    try (Connection connection = ConnectionFactory.createConnection(HBaseConfiguration.create()); Admin admin = connection.getAdmin()) {
      tables(connection, admin);
      TableDescriptorBuilder plan = TableDescriptorBuilder.newBuilder(name).setColumnFamily(family("f", 2)).setColumnFamily(family("g", 1));
      admin.createTable(plan.build(), new byte[][] {b("2"), b("4"), b("6"), b("8")});
      try (Table table = connection.getTable(name)) {
        changes(table);
        filters(table);
        admin.truncateTable(name, true);
        work(connection, table, Long.parseLong(args[1]));
      }
    }
  }

  /** Writes and reads rows. The client does not repeat an increment, so the outcome of one may be unknown. */
  private static void work(Connection connection, Table table, long seconds) throws Exception {
    int rows = 0, added = 0, unknown = 0;
    byte[] counter = b("counter");
    long end = System.nanoTime() + seconds * 1_000_000_000L;
    while (System.nanoTime() < end) {
      table.put(put(rows));
      if (++rows == 1) {
        System.out.println("begun");
      }
      List<Put> puts = new ArrayList<>();
      for (int i = rows; i < rows + BATCH; i++) {
        puts.add(put(i));
      }
      table.put(puts);
      rows += BATCH;
      try (BufferedMutator mutator = connection.getBufferedMutator(table.getName())) {
        for (int i = rows; i < rows + BATCH; i++) {
          mutator.mutate(put(i));
        }
      }
      rows += BATCH;
      checkRow(table.get(new Get(b(key(rows / 2 / BATCH * BATCH + 2)))));
      for (Result row : table.get(Arrays.asList(new Get(b(key(rows - 1))), new Get(b(key(rows - 2)))))) {
        checkRow(row);
      }
      try (ResultScanner scanner = table.getScanner(new Scan().setFilter(new PrefixFilter(b("5-"))).setLimit(10))) {
        scanner.forEach(Work::checkRow);
      }
      table.put(new Put(b("deleted")).addColumn(G, Q, b("x")));
      table.delete(new Delete(b("deleted")));
      check("deleted row", false, table.exists(new Get(b("deleted"))));
      try {
        table.incrementColumnValue(counter, G, Q, 1);
        added++;
      } catch (IOException e) {
        unknown++;
      }
    }
    Result count = table.get(new Get(counter));
    long sum = count.isEmpty() ? 0 : Bytes.toLong(count.getValue(G, Q));
    check("counter of " + added + " and " + unknown + " unknown, " + sum, true, sum >= added && sum <= added + unknown);
    table.delete(new Delete(counter));
    int seen = 0;
    try (ResultScanner scanner = table.getScanner(new Scan())) {
      for (Result row : scanner) {
        checkRow(row);
        seen++;
      }
    }
    check("rows", rows, seen);
    System.out.println("rows " + rows + ", increments " + added + ", of unknown outcome " + unknown);
  }
}
