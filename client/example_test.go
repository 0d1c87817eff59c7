package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// figures is the example in README.md, from Figures 2 and 3 of the paper.
func figures(ctx context.Context) error {
	c, err := client.Open(ctx, "127.0.0.1:7106", client.Config{})
	if err != nil {
		return err
	}
	defer c.Close()
	t := c.Table("webtable")

	r1 := client.NewRowMutation("com.cnn.www").
		Set("anchor:www.c-span.org", []byte("CNN")).
		Delete("anchor:www.abc.com")
	if err := t.Apply(ctx, r1); err != nil { // nil: durable
		return err
	}

	s := t.Scan(ctx, client.Prefix("com.cnn"), client.Families("anchor"))
	for s.Next() {
		fmt.Printf("%s has %d anchors\n", s.Row().Key, len(s.Row().Cells))
	}
	return s.Err()
}

func Example() {
	if err := figures(context.Background()); err != nil {
		fmt.Println(err)
	}
}

// administration creates a table for a user, which may then write rows.
func administration(ctx context.Context, c *client.Client) error {
	anchor, err := table.ParseFamilySpec("anchor:versions=3")
	if err != nil {
		return err
	}
	if _, err := c.Tables().Create(ctx, "webtable", anchor); err != nil && !errors.Is(err, client.ErrTableExists) {
		return err
	}
	if _, _, err := c.Users().AddToken(ctx, "crawler", 24*time.Hour, "the nightly crawl"); err != nil {
		return err
	}
	if err := c.Grants().Add(ctx, client.Grant{Principal: "crawler", Table: "webtable", Rights: "read,write"}); err != nil {
		return err
	}
	nodes, err := c.Nodes().List(ctx)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		fmt.Println(n.ID, n.RPC)
	}
	return nil
}

func ExampleClient_Tables() {
	ctx := context.Background()
	c, err := client.Open(ctx, "127.0.0.1:7106", client.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	if err := administration(ctx, c); err != nil {
		fmt.Println(err)
	}
}

// The example in README.md compiles.
func TestReadmeShowsTheExample(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(source), "error {\n")
	body, _, _ = strings.Cut(body, "\n}\n")
	if shown := "\n\t" + strings.TrimSpace(body) + "\n"; !strings.Contains(strings.ReplaceAll(string(readme), "    ", "\t"), shown) {
		t.Errorf("README.md does not show, each tab as four blanks:\n%s", shown)
	}
}
