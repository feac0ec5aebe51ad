// SPDX-License-Identifier: MIT

// Package s3 is a target of package backup in a bucket of Amazon S3, or of an object store with its interface.
//
// It uses minio-go: a program with it is built from 20 modules, one with gocloud.dev/blob/s3blob from 42, and one with
// objstore/providers/s3, which uses minio-go, from 47. Litestream restores the objects: they are named as its own.
package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/ringside-io/ringside/sqlitevfs/backup"
)

// Options configure a Target.
type Options struct {
	Endpoint string // host and port; "" means Amazon's
	Region   string // "" means us-east-1, or what the store answers
	Bucket   string // must exist
	Prefix   string // before the names of all objects, without slashes at its ends
	Insecure bool   // http
	// Credentials are asked for each request, and may change. Nil means the environment (AWS_ACCESS_KEY_ID and
	// AWS_SECRET_ACCESS_KEY), ~/.aws/credentials, or the role of the machine.
	Credentials *credentials.Credentials
	// Timeout ends a request that takes longer, which is then repeated; 0 means a minute.
	Timeout time.Duration
	// Encryption of the store is its own matter: set a default for the bucket.
	Transport http.RoundTripper // nil means minio-go's
}

// Target is a prefix of a bucket. Its methods may be called concurrently.
type Target struct {
	client *minio.Client
	o      Options
}

var _ backup.Target = (*Target)(nil)

// New returns a target. It makes no request.
func New(o Options) (*Target, error) {
	if o.Bucket == "" {
		return nil, errors.New("s3: Options.Bucket is empty")
	}
	if o.Endpoint == "" {
		o.Endpoint = "s3.amazonaws.com"
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	if o.Credentials == nil {
		o.Credentials = credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{},
		})
	}
	c, err := minio.New(o.Endpoint, &minio.Options{
		Creds: o.Credentials, Secure: !o.Insecure, Region: o.Region, Transport: o.Transport,
		MaxRetries: 1, // the backup repeats, and counts
	})
	if err != nil {
		return nil, fmt.Errorf("s3: %w", err)
	}
	o.Prefix = strings.Trim(o.Prefix, "/")
	return &Target{c, o}, nil
}

// Parse returns the target of a URL: s3://BUCKET/PREFIX, with the parameters endpoint (a URL) and region.
func Parse(s string) (*Target, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "s3" {
		return nil, fmt.Errorf("s3: %q is not s3://BUCKET/PREFIX?endpoint=URL&region=NAME: %w", s, errors.Join(err, fs.ErrInvalid))
	}
	o := Options{Bucket: u.Host, Prefix: u.Path, Region: u.Query().Get("region")}
	if e := u.Query().Get("endpoint"); e != "" {
		at, err := url.Parse(e)
		if err != nil || at.Host == "" {
			return nil, fmt.Errorf("s3: the endpoint %q is not a URL: %w", e, errors.Join(err, fs.ErrInvalid))
		}
		o.Endpoint, o.Insecure = at.Host, at.Scheme == "http"
	}
	return New(o)
}

func (t *Target) key(name string) string { return strings.TrimPrefix(t.o.Prefix+"/"+name, "/") }

// failure returns an error as the interface defines it.
func failure(err error) error {
	if r := minio.ToErrorResponse(err); r.Code == "NoSuchKey" || r.StatusCode == http.StatusNotFound && r.Code != "NoSuchBucket" {
		return fmt.Errorf("s3: %w: %w", fs.ErrNotExist, err)
	}
	if err != nil {
		return fmt.Errorf("s3: %w", err)
	}
	return nil
}

// List implements backup.Target.
func (t *Target) List(ctx context.Context, prefix string) ([]backup.Object, error) {
	ctx, cancel := context.WithCancel(ctx) // ends the listing
	defer cancel()
	var all []backup.Object
	for o := range t.client.ListObjectsIter(ctx, t.o.Bucket, minio.ListObjectsOptions{Prefix: t.key(prefix), Recursive: true}) {
		if o.Err != nil {
			return nil, failure(o.Err)
		}
		name := o.Key
		if t.o.Prefix != "" {
			name = strings.TrimPrefix(name, t.o.Prefix+"/")
		}
		all = append(all, backup.Object{Name: name, Size: o.Size, Time: o.LastModified})
	}
	return all, ctx.Err()
}

// stampKey is where Litestream has the time of a file's newest commit.
const stampKey = "litestream-timestamp"

// Put implements backup.Target.
func (t *Target) Put(ctx context.Context, name string, body *io.SectionReader, stamp time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, t.o.Timeout+time.Duration(body.Size()>>20)*time.Second)
	defer cancel()
	_, err := t.client.PutObject(ctx, t.o.Bucket, t.key(name), body, body.Size(), minio.PutObjectOptions{
		ContentType:  "application/octet-stream",
		UserMetadata: map[string]string{stampKey: stamp.UTC().Format(time.RFC3339Nano)},
	})
	return failure(err)
}

// Get implements backup.Target.
func (t *Target) Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	var o minio.GetObjectOptions
	if off > 0 || n >= 0 {
		end := off + n - 1
		if n < 0 {
			end = 0
		}
		if err := o.SetRange(off, end); err != nil {
			return nil, err
		}
	}
	c := minio.Core{Client: t.client}
	r, _, _, err := c.GetObject(ctx, t.o.Bucket, t.key(name), o)
	if err != nil {
		return nil, failure(err)
	}
	return r, nil
}

// Delete implements backup.Target.
func (t *Target) Delete(ctx context.Context, names ...string) error {
	var errs []error
	for _, name := range names {
		err := failure(t.client.RemoveObject(ctx, t.o.Bucket, t.key(path.Clean(name)), minio.RemoveObjectOptions{}))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
