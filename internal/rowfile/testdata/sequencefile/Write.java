import static java.nio.charset.StandardCharsets.ISO_8859_1;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellBuilderFactory;
import org.apache.hadoop.hbase.CellBuilderType;
import org.apache.hadoop.hbase.HConstants;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.io.ImmutableBytesWritable;
import org.apache.hadoop.hbase.mapreduce.ResultSerialization;
import org.apache.hadoop.io.SequenceFile;
import org.apache.hadoop.io.SequenceFile.CompressionType;
import org.apache.hadoop.io.compress.BZip2Codec;
import org.apache.hadoop.io.compress.CompressionCodec;
import org.apache.hadoop.io.compress.DefaultCodec;
import org.apache.hadoop.io.compress.SnappyCodec;
import org.apache.hadoop.io.serializer.WritableSerialization;
import org.apache.hadoop.util.ReflectionUtils;

/**
 * Writes the sequence files of the folder above with the classes that HBase's Export uses, which are also those of the Dataflow template:
 *
 *   mvn -q dependency:build-classpath -Dmdep.outputFile=classpath
 *   java -cp $(cat classpath) Write.java ..
 *
 * With a number of rows as the second argument, it writes as many to one file, for docs/performance.md.
 */
class Write {
  static final Configuration CONF = new Configuration();
  static String dir;

  static Cell cell(String row, String family, String qualifier, long millis, Cell.Type type, String value) {
    return CellBuilderFactory.create(CellBuilderType.SHALLOW_COPY).setRow(row.getBytes(ISO_8859_1)).setFamily(family.getBytes(ISO_8859_1))
        .setQualifier(qualifier.getBytes(ISO_8859_1)).setTimestamp(millis).setType(type).setValue(value.getBytes(ISO_8859_1)).build();
  }

  static Cell put(String row, String family, String qualifier, long millis, String value) {
    return cell(row, family, qualifier, millis, Cell.Type.Put, value);
  }

  static Cell delete(String row, String family, String qualifier, long millis, Cell.Type type) {
    return cell(row, family, qualifier, millis, type, "");
  }

  static Result result(Cell... cells) {
    return Result.create(cells);
  }

  static void write(String name, List<Result> rows, CompressionType how, Class<? extends CompressionCodec> codec) throws Exception {
    CompressionCodec c = ReflectionUtils.newInstance(codec, CONF);
    try (SequenceFile.Writer out = SequenceFile.createWriter(CONF, SequenceFile.Writer.file(new Path(dir, name)),
        SequenceFile.Writer.keyClass(ImmutableBytesWritable.class), SequenceFile.Writer.valueClass(Result.class), SequenceFile.Writer.compression(how, c))) {
      for (Result r : rows) {
        out.append(new ImmutableBytesWritable(r.getRow()), r);
      }
    }
    new java.io.File(dir, "." + name + ".crc").delete();
  }

  static void large(int n) throws Exception {
    Random random = new Random(1);
    String[] words = new String[5000];
    for (int i = 0; i < words.length; i++) {
      words[i] = String.format("%016x ", random.nextLong());
    }
    List<Result> rows = new ArrayList<>();
    for (int i = 0; i < n; i++) {
      StringBuilder value = new StringBuilder();
      while (value.length() < 1000) {
        value.append(words[random.nextInt(words.length)]);
      }
      rows.add(result(put(String.format("row%09d", i), "f", "q", 1_700_000_000_000L + i, value.substring(0, 1000))));
    }
    write("large.seq", rows, CompressionType.BLOCK, DefaultCodec.class);
  }

  public static void main(String[] args) throws Exception {
    dir = args[0];
    CONF.setStrings("io.serializations", WritableSerialization.class.getName(), ResultSerialization.class.getName());
    if (args.length > 1) {
      large(Integer.parseInt(args[1]));
      return;
    }
    CONF.setInt("io.seqfile.compress.blocksize", 2000); // several blocks
    List<Result> rows = new ArrayList<>();
    for (int i = 0; i < 20; i++) {
      String row = String.format("r%02d", i);
      Cell[] cells = new Cell[3];
      for (int j = 0; j < 3; j++) {
        cells[j] = put(row, "f", "q" + j, 1_700_000_000_000L + i, "value " + j + " of row " + i);
      }
      rows.add(result(cells));
    }
    String last = "s\0\u00ff";
    rows.add(result(put(last, "f", "", 0, ""), put(last, "g", "\u00fe:", 3, "\u00fd"), put(last, "g", "\u00fe:", 2, "old")));
    write("none.seq", rows, CompressionType.NONE, DefaultCodec.class);
    write("record.seq", rows, CompressionType.RECORD, DefaultCodec.class);
    write("block.seq", rows, CompressionType.BLOCK, DefaultCodec.class);
    write("bzip2.seq", rows, CompressionType.BLOCK, BZip2Codec.class);
    write("snappy.seq", rows, CompressionType.BLOCK, SnappyCodec.class);
    write("snappyrecord.seq", rows.subList(0, 2), CompressionType.RECORD, SnappyCodec.class);

    // An export with -Dhbase.mapreduce.include.deleted.rows=true has the marks of deletions, and the cells that they hide.
    write("deletions.seq", List.of(
        result(delete("d1", "f", "a", 5, Cell.Type.DeleteColumn), put("d1", "f", "a", 9, "new"), put("d1", "f", "a", 5, "hidden"), put("d1", "f", "b", 5, "other")),
        result(put("d2", "f", "a", 9, "new"), delete("d2", "f", "a", 5, Cell.Type.Delete), put("d2", "f", "a", 5, "hidden"), put("d2", "f", "a", 4, "older")),
        result(delete("d3", "f", "", 6, Cell.Type.DeleteFamily), put("d3", "f", "a", 7, "new"), put("d3", "f", "b", 6, "hidden"), put("d3", "g", "a", 1, "other")),
        result(put("d3", "f", "c", 6, "hidden, and in a further part of the row"), put("d3", "f", "c", 7, "new")),
        result(delete("d4", "f", "", 6, Cell.Type.DeleteFamilyVersion), put("d4", "f", "a", 7, "new"), put("d4", "f", "b", 6, "hidden"), put("d4", "f", "b", 5, "older")),
        result(delete("d5", "f", "", HConstants.LATEST_TIMESTAMP, Cell.Type.DeleteFamily)),
        result(put("d6", "f", "a", HConstants.LATEST_TIMESTAMP, "now"))), CompressionType.NONE, DefaultCodec.class);
  }
}
