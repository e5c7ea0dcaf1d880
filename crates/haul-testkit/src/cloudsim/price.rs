//! What a run's requests would cost, by public list prices. Storage is left out: it depends on time, not on requests.

use super::operation::Op;
use std::str::FromStr;

/// A price list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Price {
    /// Everything is free.
    #[default]
    None,
    /// Amazon S3 Standard, us-east-1 (aws.amazon.com/s3/pricing, 2025): PUT, COPY, POST and LIST 0.005 USD a
    /// thousand, GET and others 0.0004 USD a thousand, DELETE free; 0.09 USD for each GB (10^9 bytes) that leaves to
    /// the internet, of the first 10 TB and beyond the free 100 GB.
    Aws,
    /// Backblaze B2 (backblaze.com/cloud-storage/transaction-pricing, 2025): uploads and deletes (class A) free, GET
    /// and HEAD (class B) 0.004 USD for ten thousand, lists and copies (class C) 0.004 USD a thousand; 0.01 USD for
    /// each GB that leaves, beyond three times what is stored. The free 2,500 a day are not counted.
    B2,
    /// Google Drive: requests and traffic cost nothing.
    Gdrive,
}

impl FromStr for Price {
    type Err = String;

    fn from_str(text: &str) -> Result<Price, String> {
        match text {
            "none" => Ok(Price::None),
            "aws" => Ok(Price::Aws),
            "b2" => Ok(Price::B2),
            "gdrive" => Ok(Price::Gdrive),
            _ => Err("want aws, b2, gdrive or none".into()),
        }
    }
}

impl Price {
    /// Of one request, in USD.
    fn request(self, op: Op) -> f64 {
        use Op::*;
        match self {
            Price::None | Price::Gdrive => 0.0,
            Price::Aws => match op {
                DeleteObject | DeleteObjects | AbortMultipartUpload | DeleteBucket => 0.0,
                HeadObject | GetObject | HeadBucket | GetBucketLocation | Other => 0.000_000_4,
                _ => 0.000_005,
            },
            Price::B2 => match op {
                PutObject
                | UploadPart
                | CreateMultipartUpload
                | CompleteMultipartUpload
                | AbortMultipartUpload
                | DeleteObject
                | DeleteObjects
                | DeleteBucket => 0.0,
                HeadObject | GetObject => 0.000_000_4,
                _ => 0.000_004,
            },
        }
    }

    /// Of a byte that leaves, in USD.
    fn byte_out(self) -> f64 {
        match self {
            Price::None | Price::Gdrive => 0.0,
            Price::Aws => 0.09e-9,
            Price::B2 => 0.01e-9,
        }
    }

    /// Of a run, in USD.
    pub fn cost(self, requests: impl Iterator<Item = (Op, u64)>, bytes_out: u64) -> f64 {
        requests.map(|(op, n)| self.request(op) * n as f64).sum::<f64>() + self.byte_out() * bytes_out as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_uploads_cost_five_dollars_at_amazon_and_nothing_at_backblaze() {
        let million = |price: Price, op| (price.cost([(op, 1_000_000)].into_iter(), 0) * 1e6).round() / 1e6;
        assert_eq!(million(Price::Aws, Op::PutObject), 5.0);
        assert_eq!(million(Price::Aws, Op::GetObject), 0.4);
        assert_eq!(million(Price::Aws, Op::DeleteObject), 0.0);
        assert_eq!(million(Price::B2, Op::PutObject), 0.0);
        assert_eq!(million(Price::B2, Op::ListObjectsV2), 4.0);
        assert_eq!((Price::Aws.cost([].into_iter(), 1_000_000_000) * 1e6).round() / 1e6, 0.09);
    }
}
