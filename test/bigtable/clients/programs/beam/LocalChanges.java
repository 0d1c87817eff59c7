package org.apache.beam.sdk.io.gcp.bigtable;

import com.google.cloud.bigtable.admin.v2.BigtableInstanceAdminSettings;
import com.google.cloud.bigtable.admin.v2.BigtableTableAdminSettings;
import com.google.cloud.bigtable.data.v2.BigtableDataSettings;
import java.io.Serializable;
import org.apache.beam.sdk.io.gcp.bigtable.changestreams.dao.BigtableClientOverride;

/**
 * Reads change streams without TLS. Beam connects by TLS even as to an emulator, and has the settings in this package alone.
 */
public class LocalChanges implements BigtableClientOverride, Serializable {
  public static BigtableIO.ReadChangeStream of(BigtableIO.ReadChangeStream read) {
    return read.withBigtableClientOverride(new LocalChanges());
  }

  @Override
  public void updateInstanceAdminClientSettings(BigtableInstanceAdminSettings.Builder settings) {}

  @Override
  public void updateTableAdminClientSettings(BigtableTableAdminSettings.Builder settings) {}

  @Override
  public void updateDataClientSettings(BigtableDataSettings.Builder settings) {
    settings.stubSettings().setTransportChannelProvider(BigtableDataSettings.newBuilder().stubSettings().getTransportChannelProvider());
  }
}
