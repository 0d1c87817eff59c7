import static java.nio.charset.StandardCharsets.ISO_8859_1;

import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.parquet.avro.AvroParquetWriter;
import org.apache.parquet.column.ParquetProperties.WriterVersion;
import org.apache.parquet.hadoop.ParquetWriter;
import org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.apache.parquet.io.LocalOutputFile;

/**
 * Writes Parquet files to the folder above with the class that Beam's ParquetIO uses in the Dataflow template Cloud Bigtable to Cloud Storage Parquet:
 *
 *   mvn -q dependency:build-classpath -Dmdep.outputFile=classpath
 *   java -cp $(cat classpath) Write.java ..
 */
class Write {
  static final Schema SCHEMA = new Schema.Parser().parse("{\"name\":\"BigtableRow\",\"type\":\"record\",\"namespace\":\"com.google.cloud.teleport.bigtable\",\"fields\":["
      + "{\"name\":\"key\",\"type\":\"bytes\"},{\"name\":\"cells\",\"type\":{\"type\":\"array\",\"items\":{\"name\":\"BigtableCell\",\"type\":\"record\",\"fields\":["
      + "{\"name\":\"family\",\"type\":\"string\"},{\"name\":\"qualifier\",\"type\":\"bytes\"},"
      + "{\"name\":\"timestamp\",\"type\":\"long\",\"logicalType\":\"timestamp-micros\"},{\"name\":\"value\",\"type\":\"bytes\"}]}}}]}");

  static ByteBuffer bytes(String s) {
    return ByteBuffer.wrap(s.getBytes(ISO_8859_1));
  }

  static GenericRecord cell(String family, String qualifier, long timestamp, String value) {
    GenericRecord c = new GenericData.Record(SCHEMA.getField("cells").schema().getElementType());
    c.put("family", family);
    c.put("qualifier", bytes(qualifier));
    c.put("timestamp", timestamp);
    c.put("value", bytes(value));
    return c;
  }

  static GenericRecord row(String key, List<GenericRecord> cells) {
    GenericRecord r = new GenericData.Record(SCHEMA);
    r.put("key", bytes(key));
    r.put("cells", cells);
    return r;
  }

  static void write(Path to, List<GenericRecord> rows, CompressionCodecName codec, WriterVersion version) throws Exception {
    try (ParquetWriter<GenericRecord> out = AvroParquetWriter.<GenericRecord>builder(new LocalOutputFile(to)).withSchema(SCHEMA)
        .withCompressionCodec(codec).withWriterVersion(version).withPageRowCountLimit(8).build()) {
      for (GenericRecord r : rows) {
        out.write(r);
      }
    }
  }

  public static void main(String[] args) throws Exception {
    List<GenericRecord> rows = new ArrayList<>();
    for (int i = 0; i < 20; i++) {
      List<GenericRecord> cells = new ArrayList<>();
      for (int j = 0; j < 3; j++) {
        cells.add(cell("f", "q" + j, 1_700_000_000_000_000L + 1000 * i, "value " + j + " of row " + i));
      }
      rows.add(row(String.format("r%02d", i), cells));
    }
    rows.add(row("s\0\u00ff", List.of(cell("f", "", 0, ""), cell("g", "\u00fe:", 3000, "\u00fd"), cell("g", "\u00fe:", 2000, "old"))));
    write(Path.of(args[0], "template.parquet"), rows, CompressionCodecName.SNAPPY, WriterVersion.PARQUET_1_0);
    write(Path.of(args[0], "version2.parquet"), rows, CompressionCodecName.GZIP, WriterVersion.PARQUET_2_0);
  }
}
