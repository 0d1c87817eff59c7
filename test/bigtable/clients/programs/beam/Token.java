import com.google.auth.Credentials;
import com.google.auth.oauth2.AccessToken;
import com.google.auth.oauth2.GoogleCredentials;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Paths;
import org.apache.beam.sdk.extensions.gcp.auth.CredentialFactory;
import org.apache.beam.sdk.options.PipelineOptions;

/** The access token in the file of the environment's STELE_TOKEN. */
public class Token implements CredentialFactory {
  public static Token fromOptions(PipelineOptions options) {
    return new Token();
  }

  @Override
  public Credentials getCredential() throws IOException {
    String token = Files.readString(Paths.get(System.getenv("STELE_TOKEN"))).trim();
    return GoogleCredentials.newBuilder().setAccessToken(new AccessToken(token, null))
        .setUniverseDomain(System.getenv("GOOGLE_CLOUD_UNIVERSE_DOMAIN")).build();
  }
}
