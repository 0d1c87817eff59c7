package main

import (
	"context"
	"encoding/xml"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// property is one of a configuration of HBase.
type property struct {
	Name  string `xml:"name"`
	Value string `xml:"value"`
}

func installHBase(ctx context.Context, in place) (*programs, error) {
	p, err := installMaven(ctx, in, "hbase", "hbase/Work.java", "hbase/TokenConnection.java")
	if err != nil {
		return nil, err
	}
	return &programs{quickstart: p.quickstart, work: func(c *cluster) ([]command, error) { return p.hbase(ctx, c) }}, nil
}

// hbase returns commands of the work program, which differ in hbase-site.xml alone.
func (p *javaProject) hbase(ctx context.Context, c *cluster) ([]command, error) {
	if !c.secure {
		conf, err := c.site("open", property{"google.bigtable.emulator.endpoint.host", c.endpoint()})
		return []command{{args: []string{"java", "-cp", conf + p.path, "Work"}}}, err
	}
	host, port, err := net.SplitHostPort(c.endpoint())
	if err != nil {
		return nil, err
	}
	trust, err := c.trustStore(ctx)
	if err != nil {
		return nil, err
	}
	cluster := []property{{"google.bigtable.endpoint.host", host}, {"google.bigtable.admin.endpoint.host", host}, {"google.bigtable.endpoint.port", port}}
	byCertificate, err := c.site("certificate", append(cluster, property{"google.bigtable.auth.null.credential.enable", "true"})...)
	if err != nil {
		return nil, err
	}
	byToken, err := c.site("token", append(cluster, property{"hbase.client.connection.impl", "TokenConnection"}, property{"stele.token.file", c.file("loader.token")})...)
	if err != nil {
		return nil, err
	}
	home, err := c.clientCertificate()
	java := func(conf string, args ...string) []string {
		return append(append(append([]string{"java"}, trust...), args...), "-cp", conf+p.path, "Work")
	}
	return []command{
		{args: java(byCertificate, "-Duser.home="+home), env: []string{"GOOGLE_API_USE_CLIENT_CERTIFICATE=true"}, how: ", with a certificate"},
		{args: java(byToken), how: ", with a token"},
	}, err
}

// site writes hbase-site.xml to a folder, and returns the beginning of a class path with it.
func (c *cluster) site(name string, with ...property) (string, error) {
	all := append([]property{{"hbase.client.connection.impl", "com.google.cloud.bigtable.hbase2_x.BigtableConnection"},
		{"google.bigtable.project.id", "p"}, {"google.bigtable.instance.id", "i"},
		{"google.bigtable.grpc.retry.max.scan.timeout.retries", "30"}}, with...) // the default gives up a scan while the only node restarts
	b, err := xml.Marshal(struct {
		XMLName xml.Name   `xml:"configuration"`
		All     []property `xml:"property"`
	}{All: all})
	if err != nil {
		return "", err
	}
	dir := c.file(name)
	return dir + string(os.PathListSeparator), write(filepath.Join(dir, "hbase-site.xml"), b)
}

// trustStore makes a file with the authority of the cluster, and returns the arguments of Java for it.
func (c *cluster) trustStore(ctx context.Context) ([]string, error) {
	store := c.file("trust.p12")
	err := run(ctx, "", nil, "keytool", "-importcert", "-noprompt", "-alias", "stele", "-file", c.file("ca.pem"), "-keystore", store, "-storepass", "changeit")
	return []string{"-Djavax.net.ssl.trustStore=" + store, "-Djavax.net.ssl.trustStorePassword=changeit"}, err
}

// clientCertificate returns a home folder in which Google's clients find the certificate of the user.
func (c *cluster) clientCertificate() (home string, err error) {
	home = c.file("home")
	return home, write(filepath.Join(home, ".secureConnect", "context_aware_metadata.json"), fmt.Appendf(nil, `{"cert_provider_command": ["cat", %q]}`, c.file("loader.pem")))
}
