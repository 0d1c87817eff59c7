package org.apache.beam.sdk.io.gcp.bigtable;

import com.google.api.gax.core.CredentialsProvider;
import com.google.auth.Credentials;
import com.google.cloud.bigtable.admin.v2.BigtableInstanceAdminSettings;
import com.google.cloud.bigtable.admin.v2.BigtableTableAdminSettings;
import com.google.cloud.bigtable.data.v2.BigtableDataSettings;
import java.io.IOException;
import java.io.Serializable;
import org.apache.beam.sdk.io.gcp.bigtable.changestreams.dao.BigtableClientOverride;

/**
 * Connects the transform for change streams to a cluster without certificates, to which Beam connects by TLS, or with the credential of a factory, which it does
 * not use. Only this package has the settings.
 */
public class Changes implements BigtableClientOverride, Serializable {
  private final Credential credential;

  /** A factory of credentials. */
  public interface Credential extends Serializable {
    Credentials get() throws IOException;
  }

  private Changes(Credential credential) {
    this.credential = credential;
  }

  /** Changes the settings. Without a credential, the cluster has no certificates. */
  public static BigtableIO.ReadChangeStream connect(BigtableIO.ReadChangeStream read, Credential credential) {
    return read.withBigtableClientOverride(new Changes(credential));
  }

  @Override
  public void updateInstanceAdminClientSettings(BigtableInstanceAdminSettings.Builder settings) throws IOException {
    if (credential != null) {
      settings.setCredentialsProvider(provider());
    }
  }

  @Override
  public void updateTableAdminClientSettings(BigtableTableAdminSettings.Builder settings) throws IOException {
    if (credential != null) {
      settings.setCredentialsProvider(provider());
    }
  }

  @Override
  public void updateDataClientSettings(BigtableDataSettings.Builder settings) throws IOException {
    if (credential != null) {
      settings.setCredentialsProvider(provider());
    } else {
      settings.stubSettings().setTransportChannelProvider(BigtableDataSettings.newBuilder().stubSettings().getTransportChannelProvider());
    }
  }

  private CredentialsProvider provider() {
    return credential::get;
  }
}
