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
	"sync/atomic"
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
	// Timeout ends a Delete that takes longer, a Put that takes a second for each MiB more, and a List or Get that brings
	// nothing for so long; 0 means a minute.
	Timeout time.Duration
	// Encryption of the store is its own matter: set a default for the bucket.
	Transport http.RoundTripper // nil means minio-go's
}

// Target is a prefix of a bucket. Its methods may be called concurrently.
type Target struct {
	client   *minio.Client
	o        Options
	whole    int64       // up to this size an object is stored by one request; tests lower it
	replaces atomic.Bool // the store has no conditional Put
}

// maxWhole is less than what stores take in one request (5 GiB), and more than the least size of a part (5 MiB).
const maxWhole = 128 << 20

// maxParts is how many parts stores take.
const maxParts = 10000

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
	return &Target{client: c, o: o, whole: maxWhole}, nil
}

// Parse returns the target of a URL: s3://BUCKET/PREFIX, with the parameters endpoint (a URL) and region.
func Parse(s string) (*Target, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "s3" || u.Host == "" {
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

// ParseTarget returns the target that a command's argument names: what [Parse] takes, or a directory. The error of an
// empty name, and of another scheme, is fs.ErrInvalid.
func ParseTarget(name string) (backup.Target, error) {
	scheme, _, ok := strings.Cut(name, "://")
	if ok && scheme == "s3" {
		t, err := Parse(name)
		if err != nil {
			return nil, err
		}
		return t, nil
	}
	if ok || name == "" {
		return nil, fmt.Errorf("%q is neither a directory nor s3://BUCKET/PREFIX: %w", name, fs.ErrInvalid)
	}
	return backup.Dir(name), nil
}

func (t *Target) key(name string) string { return strings.TrimPrefix(t.o.Prefix+"/"+name, "/") }

// remedies are what to do about answers of a store, by their codes.
var remedies = map[string]string{
	"NoSuchBucket":          "create the bucket, or name another",
	"AccessDenied":          "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to credentials that may list, read, write and delete objects of the bucket",
	"InvalidAccessKeyId":    "correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
	"SignatureDoesNotMatch": "correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
	"ExpiredToken":          "renew the credentials",
	"RequestTimeTooSkewed":  "set this machine's clock",
	"PermanentRedirect":     "name the region of the bucket",

	"AuthorizationHeaderMalformed": "name the region of the bucket",
}

// refusal is an answer that the store repeats until a person has done something. It matches fs.ErrPermission.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

// Is implements what errors.Is asks for.
func (r *refusal) Is(target error) bool { return target == fs.ErrPermission }

// failure returns an error as the interface defines it.
func failure(err error) error {
	if err == nil {
		return nil
	}
	r := minio.ToErrorResponse(err)
	remedy := remedies[r.Code]
	switch {
	case remedy != "":
		return &refusal{fmt.Errorf("s3: %w (%s): %s", err, r.Code, remedy)}
	case r.Code == "NoSuchKey" || r.StatusCode == http.StatusNotFound:
		return fmt.Errorf("s3: %w: %w", fs.ErrNotExist, err)
	}
	return fmt.Errorf("s3: %w", err)
}

// errStalled is the error of an answer that has stopped.
var errStalled = errors.New("s3: the store has sent nothing for Options.Timeout")

// watch returns a context that ends when a timer does, which has begun.
func (t *Target) watch(ctx context.Context) (context.Context, *time.Timer, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, time.AfterFunc(t.o.Timeout, func() { cancel(errStalled) }), cancel
}

// List implements backup.Target.
func (t *Target) List(ctx context.Context, prefix string) ([]backup.Object, error) {
	ctx, stalled, cancel := t.watch(ctx)
	defer cancel(nil)
	defer stalled.Stop()
	var all []backup.Object
	for o := range t.client.ListObjectsIter(ctx, t.o.Bucket, minio.ListObjectsOptions{Prefix: t.key(prefix), Recursive: true}) {
		stalled.Reset(t.o.Timeout)
		if o.Err != nil {
			return nil, failure(because(ctx, o.Err))
		}
		name := o.Key
		if t.o.Prefix != "" {
			name = strings.TrimPrefix(name, t.o.Prefix+"/")
		}
		all = append(all, backup.Object{Name: name, Size: o.Size, Time: o.LastModified})
	}
	return all, because(ctx, ctx.Err())
}

// because adds the cause to the error of a context that has ended.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// stampKey is where Litestream has the time of a file's newest commit.
const stampKey = "litestream-timestamp"

// Put implements backup.Target.
func (t *Target) Put(ctx context.Context, name string, body *io.SectionReader, stamp time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, t.o.Timeout+time.Duration(body.Size()>>20)*time.Second)
	defer cancel()
	o := minio.PutObjectOptions{
		ContentType:      "application/octet-stream",
		UserMetadata:     map[string]string{stampKey: stamp.UTC().Format(time.RFC3339Nano)},
		DisableMultipart: true, // minio-go's parts replace an object of the name
	}
	var err error
	if body.Size() > t.whole {
		err = t.putParts(ctx, t.key(name), body, o)
	} else {
		t.onlyNew(&o)
		_, err = t.client.PutObject(ctx, t.o.Bucket, t.key(name), body, body.Size(), o)
	}
	switch r := minio.ToErrorResponse(err); {
	case err == nil:
		return nil
	case r.StatusCode == http.StatusPreconditionFailed || r.StatusCode == http.StatusConflict:
		return fmt.Errorf("s3: %w: %w", fs.ErrExist, err)
	case r.StatusCode == http.StatusNotImplemented && !t.replaces.Swap(true):
		return t.Put(ctx, name, body, stamp)
	case r.StatusCode == 0 && ctx.Err() == nil && t.exists(ctx, name):
		// Without an answer: the store has stored it, or has closed the connection while it was being sent an object that it had.
		return fmt.Errorf("s3: %w: %w", fs.ErrExist, err)
	}
	return failure(err)
}

// exists reports whether the store says that it has an object.
func (t *Target) exists(ctx context.Context, name string) bool {
	_, err := t.client.StatObject(ctx, t.o.Bucket, t.key(name), minio.StatObjectOptions{})
	return err == nil
}

// onlyNew adds the condition that there is no object of the name.
func (t *Target) onlyNew(o *minio.PutObjectOptions) {
	if !t.replaces.Load() {
		o.SetMatchETagExcept("*")
	}
}

// putParts stores a large object by several requests, the last of which makes it an object. Only that one has the condition.
func (t *Target) putParts(ctx context.Context, key string, body *io.SectionReader, o minio.PutObjectOptions) error {
	c := minio.Core{Client: t.client}
	id, err := c.NewMultipartUpload(ctx, t.o.Bucket, key, o)
	if err != nil {
		return err
	}
	var parts []minio.CompletePart
	size := max(t.whole, body.Size()/maxParts+1)
	for at := int64(0); err == nil && at < body.Size(); at += size {
		n := min(size, body.Size()-at)
		var p minio.ObjectPart
		p, err = c.PutObjectPart(ctx, t.o.Bucket, key, id, len(parts)+1, io.NewSectionReader(body, at, n), n, minio.PutObjectPartOptions{})
		parts = append(parts, minio.CompletePart{PartNumber: p.PartNumber, ETag: p.ETag})
	}
	if err == nil {
		var last minio.PutObjectOptions
		t.onlyNew(&last)
		_, err = c.CompleteMultipartUpload(ctx, t.o.Bucket, key, id, parts, last)
	}
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = c.AbortMultipartUpload(ctx, t.o.Bucket, key, id) // otherwise the store keeps the parts
	}
	return err
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
	ctx, stalled, cancel := t.watch(ctx)
	defer stalled.Stop()
	c := minio.Core{Client: t.client}
	r, _, _, err := c.GetObject(ctx, t.o.Bucket, t.key(name), o)
	if err != nil {
		defer cancel(nil)
		return nil, failure(because(ctx, err))
	}
	return &body{r, t, ctx, stalled, cancel}, nil
}

// body is the body of an answer. Only a Read that waits can stall.
type body struct {
	io.ReadCloser
	t       *Target
	ctx     context.Context
	stalled *time.Timer
	cancel  context.CancelCauseFunc
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	b.stalled.Reset(b.t.o.Timeout)
	n, err := b.ReadCloser.Read(p)
	b.stalled.Stop()
	if err != io.EOF {
		err = because(b.ctx, err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.cancel(nil)
	return b.ReadCloser.Close()
}

// Delete implements backup.Target. A request removes up to 1000 objects.
func (t *Target) Delete(ctx context.Context, names ...string) error {
	switch len(names) {
	case 0:
		return nil
	case 1:
		return t.deleteOne(ctx, names[0])
	}
	ctx, cancel := context.WithTimeout(ctx, t.o.Timeout)
	defer cancel()
	objects := make(chan minio.ObjectInfo, len(names))
	for _, name := range names {
		objects <- minio.ObjectInfo{Key: t.key(path.Clean(name))}
	}
	close(objects)
	var errs []error
	seen := make(map[string]bool) // the failure of a request is that of each object
	for o := range t.client.RemoveObjects(ctx, t.o.Bucket, objects, minio.RemoveObjectsOptions{}) {
		if err := failure(o.Err); err != nil && !errors.Is(err, fs.ErrNotExist) && !seen[err.Error()] {
			seen[err.Error()] = true
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}

func (t *Target) deleteOne(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, t.o.Timeout)
	defer cancel()
	err := failure(t.client.RemoveObject(ctx, t.o.Bucket, t.key(path.Clean(name)), minio.RemoveObjectOptions{}))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
