import com.google.bigtable.repackaged.com.google.auth.oauth2.AccessToken;
import com.google.bigtable.repackaged.com.google.auth.oauth2.GoogleCredentials;
import com.google.cloud.bigtable.hbase.BigtableConfiguration;
import com.google.cloud.bigtable.hbase2_x.BigtableConnection;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.concurrent.ExecutorService;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.security.User;

/** Connects with the access token in the file that the property stele.token.file names. */
public class TokenConnection extends BigtableConnection {
  public TokenConnection(Configuration conf, ExecutorService pool, User user) throws IOException {
    super(BigtableConfiguration.withCredentials(conf, credentials(conf)), pool, user);
  }

  private static GoogleCredentials credentials(Configuration conf) throws IOException {
    String token = Files.readString(Paths.get(conf.get("stele.token.file"))).trim();
    return GoogleCredentials.create(new AccessToken(token, null));
  }
}
