// SPDX-License-Identifier: MIT

// Package cloud has the line of docs/guide-http.md for the AWS SDK.
package cloud

import (
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/ringside-io/ringside/unet"
)

// S3 returns a client whose connections are unet's.
func S3(config aws.Config) *s3.Client {
	d := &unet.Dialer{}
	config.HTTPClient = &http.Client{Transport: &http.Transport{DialContext: d.DialContext, ForceAttemptHTTP2: true}}
	return s3.NewFromConfig(config)
}
