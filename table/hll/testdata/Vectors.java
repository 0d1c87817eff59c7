import com.google.zetasketch.HyperLogLogPlusPlus;
import java.security.MessageDigest;

/**
 * Prints sketches of Google's library, and merges of them, which TestVectors compares with those of this package:
 *
 * <pre>
 *   mvn dependency:copy-dependencies -DoutputDirectory=lib   # of com.google.zetasketch:zetasketch:0.1.0
 *   javac -cp 'lib/*' -d . Vectors.java && java -cp 'lib/*:.' Vectors > vectors.txt
 * </pre>
 *
 * A set is "seq:FIRST:COUNT", COUNT integers from FIRST, or "mix:FIRST:COUNT", the outputs of SplitMix64 for them. A line has one
 * set or more, a sketch of each and their merge, and then of that the length, the SHA-256, the estimate and, if it is short, the bytes.
 */
public class Vectors {
  static long mix(long n) {
    long z = (n + 1) * 0x9e3779b97f4a7c15L;
    z = (z ^ (z >>> 30)) * 0xbf58476d1ce4e5b9L;
    z = (z ^ (z >>> 27)) * 0x94d049bb133111ebL;
    return z ^ (z >>> 31);
  }

  static HyperLogLogPlusPlus<Long> sketch(String set) {
    String[] p = set.split(":");
    HyperLogLogPlusPlus<Long> h = new HyperLogLogPlusPlus.Builder().buildForLongs();
    long first = Long.parseLong(p[1]), count = Long.parseLong(p[2]);
    for (long i = 0; i < count; i++) {
      h.add(p[0].equals("mix") ? mix(first + i) : first + i);
    }
    return h;
  }

  static String hex(byte[] b) {
    StringBuilder s = new StringBuilder();
    for (byte x : b) {
      s.append(String.format("%02x", x));
    }
    return s.toString();
  }

  static void print(String... sets) throws Exception {
    HyperLogLogPlusPlus<?> h = HyperLogLogPlusPlus.forProto(sketch(sets[0]).serializeToByteArray());
    for (int i = 1; i < sets.length; i++) {
      h.merge(sketch(sets[i]).serializeToByteArray());
    }
    byte[] b = h.serializeToByteArray();
    System.out.println(
        String.join(" ", sets) + " = " + b.length + " " + hex(MessageDigest.getInstance("SHA-256").digest(b)) + " " + h.result()
            + (b.length <= 40 ? " " + hex(b) : ""));
  }

  public static void main(String[] args) throws Exception {
    long[] counts = {0, 1, 2, 3, 10, 31, 100, 1000, 5000, 10000, 20000, 21000, 22000, 23000, 24000, 30000, 50000, 100000, 300000, 3000000};
    for (long n : counts) {
      print("seq:-2:" + n);
      print("mix:7:" + n);
    }
    long[] some = {0, 1, 500, 15000, 40000, 200000};
    for (long n : some) {
      for (long m : some) {
        print("mix:0:" + n, "mix:10000:" + m);
      }
    }
  }
}
